"""HATNet's bags, and its attention against the equations."""

import pytest
import torch

from bolt.models.hatnet import HATNet, HolisticAttention
from tests.models.conformance import joint_attention, size


@pytest.mark.parametrize(
    ("time", "bags", "stride"),
    [(31, 1, {}), (100, 3, {}), (1200, 37, {}), (100, 6, {"stride": 1}), (16, 1, {"stride": 1})],
)
def test_bags_of_16_words_at_half_the_rate_or_twice_as_many_without_a_stride(time, bags, stride):
    model = HATNet(5, 2, hidden=16, n_heads=2, channels=8, **stride).eval()
    seen: list[tuple[int, ...]] = []
    model.bags.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    model(torch.randn(1, time, 5))
    assert seen == [(1, bags, 16, 8)]


@pytest.mark.parametrize(("hidden", "n_heads", "parameters"), [(256, 4, 2_374_373), (128, 2, 680_485)])
def test_the_transformer_part_has_the_size_of_the_published_one(hidden, n_heads, parameters):
    """With its 1280 channels, 7 × 7 words per bag and 4 classes."""
    part = HolisticAttention(1280, hidden, n_heads, 49, 0.4, 0.2, False)
    assert size(part) + size(torch.nn.Linear(hidden, 4)) == parameters


def test_query_key_and_value_are_initialised_as_layers_of_their_own():
    weight = HATNet(5, 2, hidden=16, n_heads=2, channels=8).bags.word_attention.in_proj_weight
    assert weight.abs().max() > (6 / (16 + 3 * 16)) ** 0.5  # the bound for one layer of all three


@pytest.mark.parametrize("global_words", [False, True])
def test_equals_its_equations(global_words):
    torch.manual_seed(0)
    part, words = HolisticAttention(6, 8, 2, 4, 0.4, 0.2, global_words).eval(), torch.randn(1, 3, 4, 6)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter, std=0.5)

    def weighted(items, scores):
        return (scores.softmax(-1)[..., None] * items).sum(-2)

    def energy(items):
        return items.square().sum(-1).sqrt() / items.shape[-1]

    plain = part.project(words[0])
    sequences = [plain.flatten(0, 1)] if global_words else list(plain)
    normed = [part.word_norm(words) for words in sequences]
    attended = [x + joint_attention(part.word_attention, n, n) for x, n in zip(sequences, normed, strict=True)]
    attended = part.word_mlp(torch.cat(attended)).view(3, 4, 8)
    bags = part.plain_bag_mlp(weighted(plain, part.word_weights(energy(plain))))
    context = part.context_norm(part.attended_bag_mlp(weighted(attended, part.word_weights(energy(attended)))))
    normed = part.bag_norm(bags)
    query = part.query_norm(bags + joint_attention(part.bag_attention, normed, normed))
    bags = part.bag_mlp(bags + joint_attention(part.context_attention, query, context))
    torch.testing.assert_close(part(words)[0], part.scan_mlp(weighted(bags, energy(bags))), rtol=1e-4, atol=1e-4)
