"""`StreamLearner`: a frozen encoder, a prior, and sums of what every example contributed. All else follows from the sums.

    belief = prior + sum of contributions        learn: +     forget: -     merge: + (the prior is not in the sums)

With `exact` the sums are integers, so that whatever leads to the same examples leads to the same bits.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sbmcl.beliefs import Belief, MatrixNormal, NormalGamma
from sbmcl.beliefs.classes import ClassBelief
from sbmcl.evaluate import Trained, load
from sbmcl.methods.conjugate import ALPaCA, ClassConjugate
from sbmcl.state import map_tensors
from sbmcl.stream import files
from sbmcl.stream.encoder import Encoder, Network, as_tensor
from sbmcl.stream.knowledge import Knowledge
from sbmcl.stream.labels import as_array, listed, named
from sbmcl.stream.priors import BeliefName, dimensions, prior_of, unit_prior
from sbmcl.stream.sums import Grid, Rows, checked

EVERYTHING = ""
"""The one key of a regression, which has no classes."""
ROOM = 1 << 17
"""Numbers that a prediction works on at once: so few that they stay in the processor's cache."""
FEWEST = 64
"""Queries that are worth going through the means of all classes once more, where that is a matrix product."""


@dataclass(frozen=True)
class Distribution:
    """What a regression expects at every x: (n,) for one target, else (n, k)."""

    mean: Float[np.ndarray, "n *k"]
    epistemic: Float[np.ndarray, "n *k"]
    """Variance that more examples would remove."""
    aleatoric: Float[np.ndarray, "n *k"]
    """Variance that they would not."""


@dataclass
class Current:
    """The belief as predictions need it, kept until something is learned; only what changed is then made again."""

    belief: Belief
    place: dict[Hashable, int]
    """Of each class in the belief."""
    classes: np.ndarray
    stale: set[Hashable]


class StreamLearner:
    """Learns from a stream, in any order and without declaring anything; predictions never change it.

    Make one with `from_encoder` or `load`. `source` is whom or what examples come from (a user, a device, a day), so that
    all of it can be forgotten later.
    """

    def __init__(self, encoder: Encoder, prior: Belief, scale: float = 1.0, *, grid: Grid | None):
        self.encoder, self.prior, self.scale, self.grid = encoder, map_tensors(Tensor.double, prior), scale, grid
        self._layout = {name: t.shape[2:] if self.has_classes else t.shape for name, t in prior.naturals.items()}
        self._known = Knowledge(files.width_of(prior), grid)
        self._current: Current | None = None
        self._home: files.Home | None = None
        self._stamps: dict[Path, tuple[int, int]] = {}  # of the folders that hold what this learner knew

    @classmethod
    def from_encoder(
        cls,
        encoder: Network | None = None,
        belief: BeliefName | Belief = "isotropic",
        *,
        dim: int | None = None,
        targets: int = 1,
        name: str | None = None,
        exact: bool = True,
        grid: int = 14,
    ) -> Self:
        """On top of any frozen encoder, or none for vectors.

        Args:
            encoder: A network in evaluation mode, or a function, that makes (n, dim) numbers of (n, ...) inputs.
            belief: About classes ("isotropic", "normal-gamma") or a regression ("matrix-normal"), with a prior for numbers
                of about unit size; or a prior of your own.
            dim: Numbers in a code; needed unless `belief` says it.
            targets: Numbers that a regression predicts.
            name: Tells the encoder from others; needed for functions that have no name of their own.
            exact: Sums are integers on a grid: the same examples give the same bits, whatever the order. An encoder then
                sees examples one by one. False is faster and exact to rounding.
            grid: Bits after the point of a code; see `sbmcl.stream.sums.Grid`.
        """
        if isinstance(belief, str):
            if dim is None:
                raise ValueError(f"how many numbers are there in a code? from_encoder(..., belief={belief!r}, dim=...)")
            belief = unit_prior(belief, dim, targets)
        wide, _ = dimensions(belief)
        if dim not in (None, wide):
            raise ValueError(f"the belief is about codes of {wide} numbers, but dim is {dim}")
        return cls(Encoder.of(encoder, name, wide), belief, grid=Grid(grid) if exact else None)

    @classmethod
    def load(
        cls,
        path: Path | str,
        encoder: Network | None = None,
        *,
        journal: bool = False,
        exact: bool = True,
        grid: int = 14,
    ) -> Self:
        """From the folder of a saved learner, or on top of the networks of a run folder of GeMCL, PN or ALPaCA.

        Args:
            path: The folder.
            encoder: The one that a learner was saved with, unless it is from a run or there was none.
            journal: What is learned from now on is on the disk when `partial_fit` returns; only one process may do so.
            exact: Of a new learner on a run, as in `from_encoder`.
            grid: The same.
        """
        folder = Path(path)
        if not files.holds_learner(folder):
            if journal:
                raise ValueError(f"{folder} holds no learner yet; make one and save it with journal=True")
            return cls.from_run(load(folder, torch.device("cpu")), exact=exact, grid=grid)
        home = files.Home(folder) if journal else None
        try:
            stamp = files.stamp(folder)
            parts, learned, generation, end = files.read(folder, encoder)
            found = cls(parts.encoder, parts.prior, parts.scale, grid=parts.grid)
            found._known = parts.known
            for each in learned:
                found._change(*found._contribution(each.codes, each.y), each.source)
            if home is not None:
                home.open(generation, end, found.model_digest())
        except BaseException:
            if home is not None:
                home.close()
            raise
        found._home, found._stamps = home, {folder.resolve(): stamp}
        return found

    def save(self, path: Path | str, *, journal: bool = False) -> None:
        """Write everything into a folder: the whole of it or, if anything goes wrong, nothing.

        A folder that holds a learner already is written to only if this one was loaded from it or saved in it, and nobody
        else has been there since: no learner is ever overwritten by one that does not know what it knew.

        With `journal`, what is learned from then on is on the disk when `partial_fit` returns, and what is forgotten is
        gone from the folder when `forget` returns. An encoder that is not from a run is not written, only its hash.
        """
        folder, place = Path(path), Path(path).resolve()
        if self._home is not None and self._home.folder.resolve() == place:
            self._home.checkpoint(self._parts(), self.model_digest())
            return
        if self._home is not None and journal:
            raise ValueError(f"this learner keeps its journal in {self._home.folder}; close() it first")
        home = files.Home(folder)
        try:
            if files.stamp(folder) != self._stamps.get(place, (0, 0)):
                raise ValueError(
                    f"{folder} holds another learner, or one that has learned since this one was loaded; save this one "
                    f"somewhere else, or load that one and let it absorb this"
                )
            if journal:
                home.checkpoint(self._parts(), self.model_digest())
                self._home = home
            else:
                files.write(folder, self._parts(), self.model_digest())
            self._stamps[place] = files.stamp(folder)
        finally:
            if self._home is not home:
                home.close()

    def close(self) -> None:
        """Keep no journal any more, so that another process may."""
        if self._home is not None:
            self._home.close()
            self._stamps[self._home.folder.resolve()] = files.stamp(self._home.folder)
            self._home = None

    @classmethod
    def from_run(cls, trained: Trained, *, exact: bool = True, grid: int = 14) -> Self:
        """As `load`, with what `sbmcl.evaluate.load` has loaded."""
        method = trained.method
        if not isinstance(method, ClassConjugate | ALPaCA):
            raise ValueError(
                f"a {type(method).__name__} keeps no sums that can be merged and forgotten by source; a StreamLearner takes "
                f"a run of GeMCL, PN or ALPaCA"
            )
        return cls(Encoder.of_run(trained), *prior_of(method), grid=Grid(grid) if exact else None)

    # What is known

    @property
    def has_classes(self) -> bool:
        return isinstance(self.prior, ClassBelief)

    @property
    def exact(self) -> bool:
        return self.grid is not None

    @property
    def classes_(self) -> np.ndarray:
        """In order: numbers by size, then texts, then all others. Columns of `predict_proba` are in this order too."""
        return as_array(self._labels())

    @property
    def class_ids_(self) -> dict[Hashable, int]:
        """A number for each class, counted up as they appear; that of a forgotten class is never given to another."""
        return {label: self._known.ids[label] for label in self._labels()}

    @property
    def counts_(self) -> dict[Hashable, int]:
        """Examples of each class."""
        return {label: self._known.by_class.examples(label) for label in self._labels()}

    @property
    def sources_(self) -> dict[Hashable, int]:
        """Examples of each named source."""
        known = self._known
        return {s: sum(known.by_source.examples((s, key)) for key in known.keys_of[s]) for s in known.sources()}

    @property
    def examples_(self) -> int:
        return sum(map(self._known.by_class.examples, self._known.by_class.place))

    def __repr__(self) -> str:
        classes = f"{len(self._known.ids)} classes, " if self.has_classes else ""
        sums = f"exact to {self.grid.bits} bits" if self.grid else "float64"
        return f"StreamLearner({type(self.prior).__name__}, {classes}{self.examples_} examples, {sums})"

    def model_digest(self) -> str:
        """Which encoder, prior and grid: learners that agree in it may merge."""
        bits = None if self.grid is None else self.grid.bits
        about = f"{self.encoder.identity}\n{type(self.prior).__name__} {self.scale!r} {bits}"
        found = hashlib.sha256(about.encode())
        for name, value in vars(self.prior).items():
            found.update(f"\n{name} {tuple(value.shape)} ".encode() + value.contiguous().numpy().tobytes())
        return found.hexdigest()

    def digest(self) -> str:
        """A hash of all that was learned. Exact learners of the same examples have the same one, whatever the way there."""
        return self._known.digest(self.model_digest())

    # Learning and forgetting

    def partial_fit(self, X: Any, y: Any, source: Hashable = None) -> Self:
        """Learn some more examples, all of one source. All of them are learned, or none and an error says why."""
        codes, y = self._examples(X, y)
        if len(codes):
            source, home = named(source), self._home
            record = None if home is None else partial(home.append, codes, y, source)
            self._change(*self._contribution(codes, y), source, record)
        return self

    def forget(self, X: Any = None, y: Any = None, *, source: Hashable = None) -> int:
        """Take back all examples of a source, or these examples (of that source, if they were learned with one).

        Returns how many. What remains is what would be there had they never been seen: to the bit where exact. What
        meta-training saw is not forgotten by this. Examples are believed to be the ones that were learned, unless they
        cannot be: more than there were, or of another class or source.
        """
        source = named(source)
        if X is None:
            if source is None:
                raise ValueError("forget what? name a source, or give the examples as X and y")
            keys, taken = self._known.keys_from(source), self._known.from_source(source)
            count = self.sources_[source]
        else:
            codes, y = self._examples(X, y)
            count = len(codes)
            if not count:
                return 0
            keys, taken = self._contribution(codes, y)
            if source is None:
                self._known.check_unnamed(keys, taken)
        self._change(keys, -taken, source)
        if self._home is not None:
            self.save(self._home.folder)
        return count

    def merge(self, other: "StreamLearner") -> "StreamLearner":
        """A new learner that knows what both know; their common prior counts once. Examples that both saw count twice."""
        if other.model_digest() != self.model_digest():
            why = "encoder" if other.encoder.identity != self.encoder.identity else "prior or grid"
            raise ValueError(
                f"these learners have not the same {why}, so their sums do not add; learn the examples again"
            )
        merged = self.empty()
        merged._known = self._known.copy()
        merged._known.absorb(other._known)
        return merged

    def absorb(self, other: "StreamLearner") -> Self:
        """Learn all that another one knows: `merge` in place."""
        self._known, self._current = self.merge(other)._known, None
        if self._home is not None:
            self.save(self._home.folder)
        return self

    def empty(self) -> "StreamLearner":
        """The same encoder and prior, with nothing learned."""
        return StreamLearner(self.encoder, self.prior, self.scale, grid=self.grid)

    def verify_forgotten(self, remaining: Iterable[tuple[Any, ...]]) -> float:
        """How far this is from a learner that saw nothing but `remaining`, tuples (X, y) or (X, y, source).

        The largest difference of two sums, relative to the largest sum: 0.0 where exact. Infinite where classes, sources
        or counts differ.
        """
        rebuilt = self.empty()
        for part in remaining:
            rebuilt.partial_fit(*part)
        return self._known.difference(rebuilt._known)

    # Predicting

    def belief(self) -> Belief:
        """The posterior; classes are in the order of `classes_`."""
        return map_tensors(Tensor.clone, self._now().belief)

    def predict(self, X: Any, *, confidence: float = 0.0, otherwise: Any = None) -> np.ndarray:
        """The most probable class (`otherwise`, where its probability is below `confidence`), or the expected target."""
        if not self.has_classes and confidence == 0:
            return self.predict_distribution(X).mean
        if confidence == 0:
            return self._now().classes[self._of_scores(X, lambda scores: scores.argmax(1)).numpy()]
        share = self._of_scores(
            X, lambda scores: torch.stack([scores.softmax(1).amax(1), scores.argmax(1).double()], 1)
        )
        sure, best = share.T.numpy()
        found = self._now().classes[best.astype(int)].astype(object)
        found[sure < confidence] = otherwise
        return found

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Of the classes in `classes_`, all of them equally likely beforehand."""
        return self._of_scores(X, lambda scores: scores.softmax(1)).numpy()

    def predict_distribution(self, X: Any) -> Distribution:
        """Of a regression: the mean, and what its uncertainty is made of."""
        belief = self._now().belief
        if not isinstance(belief, MatrixNormal):
            raise ValueError("classes have no mean and variance; predict_proba says how sure a classifier is")
        found = belief.predictive(self._codes(X).unsqueeze(0))
        scale = self.encoder.y_scale
        mean, variances = found.mean[0], [found.epistemic[0], found.aleatoric[0]]
        if scale is not None:
            mean, variances = scale.undo(mean), [v * scale.deviation.square() for v in variances]
        parts = [part.squeeze(1) if part.shape[1] == 1 else part for part in (mean, *variances)]
        return Distribution(*(part.double().numpy() for part in parts))

    def novelty(self, X: Any) -> Float[np.ndarray, "n"]:
        """How unlike everything learned: higher is more novel.

        For classes, the log-odds of a new class against all known ones; for a regression, the share
        f^T L^-1 f of the variance that more examples would remove, in units of the noise.
        """
        belief, codes = self._now().belief, self._codes(X)
        if isinstance(belief, MatrixNormal):
            return (belief.predictive(codes.unsqueeze(0)).spread[0] - 1).numpy()
        assert isinstance(belief, ClassBelief)
        assert isinstance(self.prior, ClassBelief)
        found = [belief.novelty(piece.unsqueeze(0), self.prior)[0] for piece in self._pieces(codes)]
        return torch.cat(found).numpy()

    def score(self, X: Any, y: Any) -> float:
        """Accuracy, or the coefficient of determination R^2 (averaged over targets) of a regression."""
        if self.has_classes:
            return float(np.mean([a == b for a, b in zip(listed(self.predict(X)), listed(y), strict=True)]))
        right, mean = np.asarray(y, float).reshape(len(y), -1), self.predict(X).reshape(len(y), -1)
        rest, total = ((right - mean) ** 2).sum(0), ((right - right.mean(0)) ** 2).sum(0)
        return float(np.mean(1 - rest / np.where(total > 0, total, 1.0)))

    # Inside

    def _labels(self) -> list[Hashable]:
        return self._known.keys() if self.has_classes else []

    def _parts(self) -> files.Parts:
        return files.Parts(self.encoder, self.prior, self.scale, self.grid, self._known)

    def _codes(self, X: Any) -> Float[Tensor, "n d"]:
        return self.encoder.codes(self.encoder.inputs(X), one_by_one=False)

    def _examples(self, X: Any, y: Any) -> tuple[Float[Tensor, "n d"], Any]:
        """Codes, and labels or targets, on the grid if there is one."""
        x = self.encoder.inputs(X)
        y = listed(y) if self.has_classes else self._targets(y)
        if len(x) != len(y):
            raise ValueError(f"X has {len(x)} examples, but y has {len(y)}")
        dim, _ = dimensions(self.prior)
        codes = self.encoder.codes(x, one_by_one=self.exact) if len(x) else x.new_zeros(0, dim)
        if codes.shape[1] != dim:
            raise ValueError(f"the belief is about codes of {dim} numbers, but the encoder makes {codes.shape[1]}")
        if self.grid is not None:
            codes = self.grid.rounded(codes)
            y = self.grid.rounded(y) if isinstance(y, Tensor) else y
        return codes.double(), y

    def _targets(self, y: Any) -> Float[Tensor, "n k"]:
        _, wanted = dimensions(self.prior)
        found = as_tensor(y).double()
        found = found.unsqueeze(1) if found.dim() == 1 else found
        if found.dim() != 2 or found.shape[1] != wanted or not bool(torch.isfinite(found).all()):
            raise ValueError(f"y should hold {wanted} finite numbers for each example, but is {tuple(found.shape)}")
        return found if self.encoder.y_scale is None else self.encoder.y_scale.apply(found)

    def _contribution(self, codes: Float[Tensor, "n d"], y: Any) -> tuple[list[Hashable], Rows]:
        """What examples add: classes, and a row for each."""
        if isinstance(self.prior, ClassBelief):
            place: dict[Hashable, int] = {}
            y = torch.tensor([place.setdefault(label, len(place)) for label in y])
            keys, prior = list(place), self.prior.grow(len(place), self.prior)
        else:
            keys, prior = list[Hashable]([EVERYTHING]), self.prior
        if self.grid is None:
            return keys, self._rows(prior, codes, y, len(keys))
        size = self.grid.at_once(codes if self.has_classes else torch.cat([codes, y], 1))
        pieces = zip(codes.split(size), y.split(size), strict=True)
        units = [self.grid.to_units(self._rows(prior, *piece, len(keys))) for piece in pieces]
        rows = units[0]
        for more in units[1:]:
            rows = checked(rows + more, self.grid)
        return keys, rows

    def _rows(self, prior: Belief, codes: Tensor, y: Tensor, rows: int) -> Rows:
        """Natural parameters of the evidence side by side, after the count of examples."""
        parts = prior.evidence(codes.unsqueeze(0), y.unsqueeze(0)).naturals.values()
        counts = torch.bincount(y, minlength=rows) if self.has_classes else torch.tensor([len(y)])
        return torch.cat([counts.unsqueeze(1), *(part.reshape(rows, -1) for part in parts)], 1)

    def _change(
        self, keys: list[Hashable], added: Rows, source: Hashable, record: Callable[[], None] | None = None
    ) -> None:
        self._known.change(keys, added, source, record=record)
        if self._current is not None:
            self._current.stale.update(keys)

    def _now(self) -> Current:
        known, current = self._known.by_class, self._current
        if not known.place:
            raise ValueError("nothing has been learned yet; call partial_fit first")
        if current is None or any((key in current.place) != (key in known.place) for key in current.stale):
            keys = self._known.keys()
            place = {key: at for at, key in enumerate(keys)}
            self._current = current = Current(self._posterior(keys), place, as_array(keys), set())
        elif current.stale:
            keys = list(current.stale)
            at, fresh = torch.tensor([current.place[key] for key in keys]), self._posterior(keys).naturals
            for name, value in current.belief.naturals.items():
                value[(slice(None), at) if self.has_classes else ...] = fresh[name]
            current.stale.clear()
        return current

    def _posterior(self, keys: list[Hashable]) -> Belief:
        values, first, parts = self._known.by_class.values(keys), 1, {}
        for name, shape in self._layout.items():
            part = values[:, first : first + shape.numel()]
            first += shape.numel()
            parts[name] = part.unsqueeze(0) if self.has_classes else part.reshape(shape)
        prior = self.prior
        if isinstance(prior, ClassBelief):
            prior = prior.grow(len(keys), prior)
        return prior.observe(replace(prior, **parts))  # pyright: ignore[reportArgumentType]

    def _of_scores(self, X: Any, what: Callable[[Tensor], Tensor]) -> Tensor:
        """Something of the log-scores of all classes (n c), which are never all there at once."""
        belief = self._now().belief
        if not isinstance(belief, ClassBelief):
            raise ValueError("a regression has no classes to be sure of; see predict_distribution")
        pieces = self._pieces(self._codes(X))
        return torch.cat([what(belief.predictive(piece.unsqueeze(0))[0] * self.scale) for piece in pieces])

    def _pieces(self, codes: Float[Tensor, "n d"]) -> tuple[Tensor, ...]:
        """So few queries at a time that what lies between them and all classes fits into little memory."""
        classes = len(self._known.by_class.place)
        if isinstance(self.prior, NormalGamma):  # which works on every dimension of every query and class
            return codes.split(max(1, ROOM // (classes * codes.shape[1])))
        return codes.split(max(FEWEST, ROOM // classes))
