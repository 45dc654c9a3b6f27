"""Transformers against a dense oracle, and what streaming, codes and batch-norm promise."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dense_transformer import dense_prediction
from methods import pictures
from sbmcl.config import Transformer
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.data.images import ImageEpisodes
from sbmcl.data.sine import SineSource
from sbmcl.episode import Episode, Examples
from sbmcl.nets.attention import Kept, LinearKept, LinearSums, Memory, SoftmaxKept, features
from sbmcl.nets.transformer import positions
from sbmcl.state import map_tensors, state_bytes

SHORT = EpisodeShape(tasks=3, shots=2, queries=2)
LONG = EpisodeShape(tasks=5, shots=17, queries=2)  # 170 tokens: three blocks of the linear scan


def build(source: EpisodeSource, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 16, "layers": 3, "heads": 4, "head_width": 8, "hidden": 24, "vocabulary": 9}
    return Transformer(**{**sizes, "dropout": 0.0, **options}).build(source).double()


def drawn(source: EpisodeSource, shape: EpisodeShape = SHORT, batch: int = 2, seed: int = 0) -> Episode:
    episode = source.draw(shape, batch, rng_for(seed, "test", 0))
    return map_tensors(lambda t: t.double() if t.is_floating_point() else t, episode)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def oracle_loss(method: Any, episode: Episode) -> tuple[Tensor, list[Tensor]]:
    """The published loss, with the auxiliary one of every layer."""
    codes = None if method.codebook is None else method.codebook.draw(episode.size, rng=rng(), device=method.device)
    prediction, looks = dense_prediction(method, episode, codes)
    target = episode.query.targets if codes is None else codes.gather(1, episode.query.targets)
    linear = isinstance(method.trunk.start(1, torch.float64)[0], LinearSums)
    return method.head.loss(prediction, target), [
        pooled_cross_entropy(s.log() if linear else s, episode) for s in looks
    ]


def pooled_cross_entropy(log_weights: Tensor, episode: Episode) -> Tensor:
    """logsumexp over the tokens of each task, in the first half of the heads, against the query's task; tasks in order."""
    tasks = int(episode.stream.task.max()) + 1
    pooled = log_weights[:, : log_weights.shape[1] // 2].unflatten(-1, (tasks, -1)).logsumexp(-1)
    return F.cross_entropy(pooled.flatten(0, 2), episode.query.task.unsqueeze(1).expand(pooled.shape[:3]).flatten())


SOURCES = {"classes": pictures, "vector": SineSource, "angle": lambda: pictures("rotation")}


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize("shape", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_loss_and_gradients_equal_the_dense_oracle(
    attention: str, norm: bool, shape: EpisodeShape, guided: bool
) -> None:
    source = SineSource()
    method = build(source, attention=attention, norm=norm, guided=5).train()
    method.meta_step = 4 if guided else 5
    episode = drawn(source, shape)
    losses = method.meta_loss(episode, rng=rng())
    expected, attention_losses = oracle_loss(method, episode)
    torch.testing.assert_close(losses.parts["mse"], expected, rtol=1e-9, atol=0)
    if guided:
        extra = torch.stack(attention_losses).sum()
        torch.testing.assert_close(losses.parts["attention"], extra, rtol=1e-6, atol=0)  # the 1e-9 inside the logarithm
        expected = expected + extra
    torch.testing.assert_close(losses.total, expected, rtol=1e-6, atol=0)
    names = [name for name, _ in method.named_parameters()]
    mine, theirs = (torch.autograd.grad(total, list(method.parameters())) for total in (losses.total, expected))
    for name, one, other in zip(names, mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8 * other.abs().max().item() + 1e-12, msg=name)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_learning_and_asking_equal_the_dense_oracle(attention: str, kind: str) -> None:
    source = SOURCES[kind]()
    method = build(source, attention=attention).eval()
    episode = drawn(source)
    start = method.init(2, rng=rng())
    with torch.no_grad():
        answer = method.predict(method.learn(start, episode.stream), episode.query.x)
        expected, _ = dense_prediction(method, episode, start.codes)
    if start.codes is not None:
        expected = torch.stack([scores[:, codes] for scores, codes in zip(expected, start.codes, strict=True)])
    torch.testing.assert_close(answer, expected, rtol=1e-9, atol=1e-11)


def test_linear_attention_in_float32_equals_the_quadratic_form_to_1e_6() -> None:
    q, k, v = torch.randn(3, 2, 3, 1_000, 32, generator=rng())
    q, k = features(q), features(k)
    start = LinearSums.empty(q)
    half = start.write(k[:, :, :300], v[:, :, :300])
    weights = (q.double() @ k.double().mT).tril()
    expected = (weights / weights.sum(-1, keepdim=True)) @ v.double()
    first, second = slice(0, 300), slice(300, None)
    for memory, part in ((start, slice(None)), (start, first), (half, second)):
        seen = memory.look(q[:, :, part], k[:, :, part], v[:, :, part])
        torch.testing.assert_close(seen.double(), expected[:, :, part], rtol=0, atol=1e-6)
    apart = half.ask(q[:, :, 300:301], k[:, :, 300:301], v[:, :, 300:301])
    torch.testing.assert_close(apart.double(), expected[:, :, 300:301], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kept", [SoftmaxKept, LinearKept])
@pytest.mark.parametrize("grad", [False, True])
def test_a_long_memory_is_looked_at_in_strips(kept: type[Kept], grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips of any height, with and without gradients, give what one look at everything gives."""
    q, k, v = torch.rand(3, 2, 3, 40, 8, generator=rng(), dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        whole = kept.empty(q).look(q, k, v)
        memory = kept.empty(q).write(k[:, :, :13], v[:, :, :13])
        late = slice(13, None)
        asked = memory.ask(q[:, :, late], k[:, :, late], v[:, :, late])
        for rows in (1, 5, 100):
            monkeypatch.setattr("sbmcl.nets.attention.ROWS", rows)
            torch.testing.assert_close(memory.look(q[:, :, late], k[:, :, late], v[:, :, late]), whole[:, :, late])
            torch.testing.assert_close(memory.ask(q[:, :, late], k[:, :, late], v[:, :, late]), asked)
    torch.testing.assert_close(asked[:, :, :1], whole[:, :, 13:14])


def test_sums_remember_what_keeping_everything_does() -> None:
    q, k, v = features(torch.randn(3, 2, 3, 90, 8, generator=rng(), dtype=torch.float64))
    sums: Memory = LinearSums.empty(q)
    kept: Memory = LinearKept.empty(q)
    for part in (slice(0, 70), slice(70, 71), slice(71, 90)):
        parts = q[:, :, part], k[:, :, part], v[:, :, part]
        torch.testing.assert_close(sums.look(*parts), kept.look(*parts))
        sums, kept = sums.write(*parts[1:]), kept.write(*parts[1:])
    torch.testing.assert_close(sums.ask(q, k, v), kept.ask(q, k, v))


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_queries_do_not_see_each_other(attention: str) -> None:
    source = SineSource()
    method = build(source, attention=attention).eval()
    episode = drawn(source)
    with torch.no_grad():
        state = method.learn(method.init(2), episode.stream)
        together = method.predict(state, episode.query.x)
        alone = [method.predict(state, episode.query.x[:, i : i + 1]) for i in range(len(episode.query))]
    torch.testing.assert_close(torch.cat(alone, dim=1), together)


def test_query_targets_are_never_encoded() -> None:
    """Not even into the statistics of a batch-norm (deviation D15)."""
    source = SineSource()
    episode = drawn(source)
    other = Episode(episode.stream, Examples(episode.query.x, -3 * episode.query.targets, episode.query.task))
    weights = []
    for each in (episode, other):
        method = build(source).train()
        method.meta_loss(each, rng=rng())
        weights.append(method.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_labels_are_nothing_but_codes() -> None:
    """The same stream under other labels and the codes to match is the same stream."""
    source = pictures()
    method = build(source).eval()
    episode = drawn(source)
    turned = map_tensors(lambda t: t, Examples(episode.stream.x, (episode.stream.targets + 1) % 3, episode.stream.task))
    start = method.init(2, rng=rng())
    order = torch.tensor([2, 0, 1, *range(3, 9)])
    with torch.no_grad():
        scores = method.predict(method.learn(start, episode.stream), episode.query.x)
        renamed = type(start)(start.memories, start.length, start.codes[:, order])
        again = method.predict(method.learn(renamed, turned), episode.query.x)
    torch.testing.assert_close(again, scores[..., order])
    assert scores.shape[-1] == 9, "an unused code can be picked, and is an error"


def test_more_classes_than_codes_are_refused() -> None:
    source = pictures()
    method = build(source, vocabulary=2)
    with pytest.raises(ValueError, match="vocabulary of 3 codes"):
        method.learn(method.init(2), drawn(source).stream)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_streams_have_no_longest(attention: str) -> None:
    source = SineSource()
    method = build(source, attention=attention, layers=1, heads=1).eval()
    episode = drawn(source, EpisodeShape(tasks=1, shots=200, queries=3), batch=1)
    with torch.no_grad():
        state = method.init(1)
        far = type(state)(state.memories, state.length + 1_000_000, state.codes)
        near, late = (method.learn(start, episode.stream) for start in (state, far))
        assert late.length == 1_000_400
        one, other = (method.predict(after, episode.query.x) for after in (near, late))
    assert other.isfinite().all()
    assert not torch.allclose(one, other)


def test_positions_at_any_place() -> None:
    place = torch.tensor([0, 1, 25_000])
    encoding = positions(place, 6, torch.float64)
    rate = torch.tensor([1.0, 10_000 ** (-1 / 3), 10_000 ** (-2 / 3)], dtype=torch.float64)
    torch.testing.assert_close(encoding[:, ::2], (place.unsqueeze(1) * rate).sin())
    torch.testing.assert_close(encoding[:, 1::2], (place.unsqueeze(1) * rate).cos())


def test_only_softmax_attention_grows_with_the_stream() -> None:
    source = SineSource()
    for attention in ("softmax", "linear"):
        method = build(source, attention=attention).eval()
        with torch.no_grad():
            sizes = []
            for shots in (10, 20, 30):
                stream = drawn(source, EpisodeShape(1, shots, 1), batch=1).stream
                sizes.append(state_bytes(method.learn(method.init(1), stream)))
        token = 3 * 2 * 4 * 8 * 8  # layers, key and value, heads, width, bytes
        assert sizes[1] - sizes[0] == sizes[2] - sizes[1] == (20 * token if attention == "softmax" else 0)


def test_in_bfloat16_sums_stay_in_float32() -> None:
    source = SineSource()
    for attention in ("softmax", "linear"):
        method = build(source, attention=attention).float().eval()
        episode = map_tensors(lambda t: t.float() if t.is_floating_point() else t, drawn(source, LONG))
        answers = []
        for bf16 in (False, True):
            method.bf16 = bf16
            with torch.no_grad():
                state = method.learn(method.init(2), episode.stream)
                answers.append(method.predict(state, episode.query.x))
        kept = torch.bfloat16 if attention == "softmax" else torch.float32
        assert all(t.dtype == kept for t in (vars(state.memories[0]).values()))
        assert answers[1].dtype == torch.float32
        assert not torch.equal(*answers)
        torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0.03)


@pytest.mark.parametrize(
    ("benchmark", "attention", "head_width", "vocabulary", "millions"),
    [
        ("classes", "softmax", 64, 500, 10.42),
        ("classes", "linear", 512, 50, 39.36),
        ("vector", "softmax", 64, 500, 9.53),
        ("vector", "linear", 512, 500, 38.94),
        ("image", "softmax", 64, 500, 10.89),
        ("image", "linear", 512, 500, 40.29),
        ("angle", "softmax", 64, 500, 10.44),
        ("angle", "linear", 512, 500, 39.84),
    ],
)
def test_sizes_are_the_published_ones(
    benchmark: str, attention: Any, head_width: int, vocabulary: int, millions: float
) -> None:
    """As many trainable parameters as the published one has."""
    tasks: dict[str, Any] = {"classes": "classification", "image": "completion", "angle": "rotation"}
    source = SineSource() if benchmark == "vector" else pictures(tasks[benchmark], size=32)
    assert benchmark == "vector" or isinstance(source, ImageEpisodes)
    with torch.device("meta"):
        method = Transformer(attention, head_width=head_width, vocabulary=vocabulary).build(source)
    assert round(sum(p.numel() for p in method.parameters()) / 1e6, 2) == pytest.approx(millions)


def test_what_it_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="generation"):
        build(pictures("generation"))
    with pytest.raises(ValueError, match="even"):
        Transformer(width=5)
