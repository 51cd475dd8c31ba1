"""Check that the page on bad input matches what is tested."""

import pytest

from tests.bad_inputs import DATA_CASES, PAGE, PREPROCESSING_CASES, SCAN_CASES, TRAINING_CASES, Case, render


def test_the_page_is_made_of_the_lists():
    assert PAGE.read_text() == render(), "run: python -m tests.bad_inputs"


def test_inputs_are_unique():
    inputs = [case.input for case in DATA_CASES + PREPROCESSING_CASES + TRAINING_CASES + SCAN_CASES]
    assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize(
    ("text", "said"), [("4.nii.gz: 3 bytes, but 9 are due.", True), ("3 bytes, but many", False), ("bytes", False)]
)
def test_a_message_is_found_whatever_stands_for_the_dots(text, said):
    assert Case("cut", "excluded", "… bytes, but … are due").is_said(text) is said
