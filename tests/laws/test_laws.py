"""What is true of every belief because Bayes' rule is a sum: order, chunks, shards and forgetting.

Each law draws its own examples by hypothesis, in float64, and holds to 1e-9. `families.py` lists who has to obey.
"""

from typing import Any

import pytest
import torch
from families import BATCH, CLASS_FAMILIES, CLASSES, DIM, FAMILIES, SHARED, Family, normal, one_class, single
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

from sbmcl.beliefs.base import Belief
from sbmcl.state import map_tensors, tensors

law = settings(deadline=None, max_examples=20, derandomize=True)
every = pytest.mark.parametrize("name", FAMILIES)
seeds, counts = st.integers(0, 10**6), st.integers(0, 12)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_close(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    """Relative, each number beside itself, the largest of its tensor or 1; infinities have to be the same."""
    mine, theirs = tensors(one), tensors(other)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        finite = b[b.isfinite()].double().abs()
        scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance * scale)


def assert_same_knowledge(family: Family, one: Belief, other: Belief, tolerance: float = 1e-9) -> None:
    """The same natural parameters, and the same answers made from them."""
    assert_close(one, other, tolerance)
    assert_close(family.answers(one, seeded(0)), family.answers(other, seeded(0)), tolerance)


def part(observations: tuple[Tensor, ...], which: Any) -> tuple[Tensor, ...]:
    return tuple(t[:, which] for t in observations)


@every
@given(seeds, counts)
@law
def test_any_order(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    shuffled = part(observations, torch.randperm(count, generator=rng))
    one, other = (prior.observe(prior.evidence(*o)) for o in (observations, shuffled))
    assert_same_knowledge(family, one, other)


@every
@given(seeds, counts, st.data())
@law
def test_any_chunks(name: str, seed: int, count: int, data: st.DataObject) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=count)))
    belief = prior
    for start, stop in zip([0, *cuts], [*cuts, count], strict=True):  # empty chunks too
        belief = belief.observe(belief.evidence(*part(observations, slice(start, stop))))
    assert_same_knowledge(family, belief, prior.observe(prior.evidence(*observations)))


@every
@given(seeds, counts, st.data())
@law
def test_any_tree_of_merges(name: str, seed: int, count: int, data: st.DataObject) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    owner = torch.randint(4, (count,), generator=rng)
    shards = [prior.observe(prior.evidence(*part(observations, owner == i))) for i in range(4)]  # some have nothing
    while len(shards) > 1:
        one = shards.pop(data.draw(st.integers(0, len(shards) - 1)))
        other = shards.pop(data.draw(st.integers(0, len(shards) - 1)))
        shards.append(one.merge(other, prior=prior))
    assert_same_knowledge(family, shards[0], prior.observe(prior.evidence(*observations)))


@every
@given(seeds, counts, counts)
@law
def test_what_is_retracted_was_never_seen(name: str, seed: int, kept: int, forgotten: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, kept + forgotten)
    mixed = torch.randperm(kept + forgotten, generator=rng)
    stay, go = part(observations, mixed[:kept]), part(observations, mixed[kept:])
    belief = prior.observe(prior.evidence(*observations)).retract(prior.evidence(*go))
    assert_same_knowledge(family, belief, prior.observe(prior.evidence(*stay)))


@every
@given(seeds, counts)
@law
def test_streams_side_by_side_do_not_see_each_other(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    together = prior.observe(prior.evidence(*observations))
    for i in range(BATCH):

        def mine(belief: Belief, i: int = i) -> Belief:
            return type(belief)(**{n: t if n in SHARED else t[i : i + 1] for n, t in vars(belief).items()})

        alone = mine(prior)
        assert_close(alone.observe(alone.evidence(*(t[i : i + 1] for t in observations))), mine(together))


@every
@given(seeds, counts)
@law
def test_beliefs_are_never_changed(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    before = map_tensors(torch.clone, (prior, observations))
    evidence = prior.evidence(*observations)
    kept = map_tensors(torch.clone, evidence)
    prior.observe(evidence).retract(evidence).merge(prior, prior=prior)
    family.answers(prior, rng)
    after = (prior, observations, evidence)
    assert all(torch.equal(a, b) for a, b in zip(tensors((*before, kept)), tensors(after), strict=True))


@every
@given(seeds, st.integers(CLASSES, 12))
@law
def test_kl_is_a_divergence(name: str, seed: int, count: int) -> None:
    """Nought of a belief from itself, and positive of any two others."""
    family, rng = FAMILIES[name], seeded(seed)
    one, other = family.posterior(rng, count), family.posterior(rng, count)
    of_the_model = {n: t for n, t in vars(one).items() if n in SHARED}
    other = type(other)(**{**vars(other), **of_the_model})
    assert one.kl(one).abs().max() < 1e-9
    assert (one.kl(other) > 0).all()
    assert one.kl(other).isfinite().all()


@every
@given(seeds, st.integers(CLASSES, 12))
@law
def test_samples_have_their_shape_in_front_and_follow_the_generator(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    belief = family.posterior(rng, count)
    shapes = [t.shape for t in tensors(belief.mode())]
    draws, again = belief.sample(3, 2, rng=seeded(seed)), belief.sample(3, 2, rng=seeded(seed))
    assert [t.shape for t in tensors(draws)] == [(3, 2, *shape) for shape in shapes]
    assert all(torch.equal(a, b) for a, b in zip(tensors(draws), tensors(again), strict=True))
    assert all(len(t.unique()) == t.numel() for t in tensors(draws))


@every
@given(seeds, st.integers(CLASSES, 12))
@law
def test_float32_tells_the_same(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, observations = family.prior(rng), family.observations(rng, count)
    double = prior.observe(prior.evidence(*observations))
    small = single(prior)
    small = small.observe(small.evidence(*single(observations)))
    assert all(t.dtype == torch.float32 for t in tensors(small))
    assert_same_knowledge(family, small, double, tolerance=2e-3)


@every
@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_gradient_is_a_number(name: str, count: int, dtype: torch.dtype) -> None:
    """Also where classes have not been seen, and through all that can be computed."""
    family, rng = FAMILIES[name], seeded(count)

    def leaf(t: Tensor) -> Tensor:
        return t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t

    prior, observations = map_tensors(leaf, (family.prior(rng), family.observations(rng, count)))
    belief = prior.observe(prior.evidence(*observations))
    results = tensors(family.answers(belief, rng))
    if not family.flat or count >= CLASSES:
        results += tensors(belief.sample(2, rng=rng))
    if not family.flat:
        results.append(belief.kl(prior))
    torch.stack([r[r.isfinite()].square().sum() for r in results]).sum().backward()
    leaves = [t for t in tensors((prior, observations)) if t.requires_grad and t.numel()]
    assert count == 0 or any(t.grad is not None and t.grad.abs().sum() > 0 for t in leaves)
    assert all(t.grad is None or t.grad.isfinite().all() for t in leaves)


@pytest.mark.parametrize("name", CLASS_FAMILIES)
@given(seeds, counts)
@law
def test_a_class_never_seen_is_the_prior(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, (x, label) = family.prior(rng), family.observations(rng, count)
    seen = prior.observe(prior.evidence(x, label.clamp_max(CLASSES - 2)))
    query = normal(rng, 2, 5, DIM)
    assert_close([t[:, -1] for t in _by_class(seen)], [t[:, -1] for t in _by_class(prior)])
    assert torch.equal(seen.predictive(query)[..., -1], prior.predictive(query)[..., -1])
    assert family.flat == bool(prior.predictive(query).isinf().all())


@pytest.mark.parametrize("name", CLASS_FAMILIES)
@given(seeds, counts)
@law
def test_classes_need_not_be_declared(name: str, seed: int, count: int) -> None:
    """Room made for a label when it arrives is room that was there from the start."""
    family, rng = FAMILIES[name], seeded(seed)
    prior, (x, label) = family.prior(rng), family.observations(rng, count)
    first = one_class(prior)
    belief = first
    for t in range(count):
        belief = belief.grow(int(label[:, t].max()) + 1, first)
        belief = belief.observe(belief.evidence(x[:, t : t + 1], label[:, t : t + 1]))
    assert_same_knowledge(family, belief.grow(CLASSES, first), prior.observe(prior.evidence(x, label)))
    assert belief.grow(1, first) is belief


@pytest.mark.parametrize("name", CLASS_FAMILIES)
@given(seeds, counts)
@law
def test_shards_that_met_different_classes_merge(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, (x, label) = family.prior(rng), family.observations(rng, count)
    first, low = one_class(prior), (label == 0).all(0)
    narrow = first.observe(first.evidence(x[:, low], label[:, low]))  # knows one class only
    wide = prior.observe(prior.evidence(x[:, ~low], label[:, ~low]))
    right = prior.observe(prior.evidence(x, label))
    assert_same_knowledge(family, narrow.merge(wide, prior=first), right)
    assert_same_knowledge(family, wide.merge(narrow, prior=first), right)


@pytest.mark.parametrize("name", CLASS_FAMILIES)
def test_beliefs_about_different_numbers_of_classes_do_not_add(name: str) -> None:
    """Broadcasting would give every class the evidence of one."""
    family = FAMILIES[name]
    prior = family.prior(seeded(0))
    first = one_class(prior)
    evidence = first.evidence(normal(seeded(1), 2, 3, DIM), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="3 classes and 1"):
        prior.observe(evidence)


@pytest.mark.parametrize("name", CLASS_FAMILIES)
@given(seeds, counts)
@law
def test_names_of_classes_do_not_matter(name: str, seed: int, count: int) -> None:
    family, rng = FAMILIES[name], seeded(seed)
    prior, (x, label) = family.prior(rng), family.observations(rng, count)
    renamed = torch.randperm(CLASSES, generator=rng)
    one, other = prior.observe(prior.evidence(x, label)), prior.observe(prior.evidence(x, renamed[label]))
    assert_close(_by_class(one), [t[:, renamed] for t in _by_class(other)])
    query = normal(rng, 2, 5, DIM)
    assert_close(one.predictive(query), other.predictive(query)[..., renamed])


def _by_class(belief: Belief) -> list[Tensor]:
    return [t for t in tensors(belief) if t.dim() == 3]


def test_every_family_is_under_the_law() -> None:
    def concrete(cls: type) -> set[type]:
        below = {c for sub in cls.__subclasses__() for c in concrete(sub)}
        return below or {cls}

    ours = {cls for cls in concrete(Belief) if cls.__module__.startswith("sbmcl")}
    assert ours == {type(family.prior(seeded(0))) for family in FAMILIES.values()}


@every
def test_torch_sees_through(name: str) -> None:
    """A belief is a tree of tensors like any other: vmap, saving and moving work on it."""
    family = FAMILIES[name]
    belief = family.posterior(seeded(0), 5)
    leaves, spec = pytree.tree_flatten(belief)
    assert all(isinstance(leaf, Tensor) for leaf in leaves)
    assert_close(pytree.tree_unflatten(leaves, spec), belief)
