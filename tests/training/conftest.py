"""The toy dataset, and calls that are listened to."""

import pytest


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Cache and folds of the toy dataset; not to be changed."""
    from tests.training.test_runner import write_toy

    return write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def spied(monkeypatch):
    """Pass the result and the arguments of each call of `owner.name` to `note`."""

    def spy(owner, name, note):
        real = getattr(owner, name)

        def call(*given, **named):
            result = real(*given, **named)
            note(result, *given)
            return result

        monkeypatch.setattr(owner, name, call)

    return spy
