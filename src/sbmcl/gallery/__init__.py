"""What trained runs do after one stream that they have never seen, as pictures to look at; several runs stand side by side.

It names no method: what is asked decides what is shown, through `predict`, `novelty` and `sample`. To show another kind of
data, write a function of a `Scene` and name it in `SHOWN`.

    drawing    how strips of pictures and panels of curves are put on a page
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from sbmcl.beliefs import LinearPredictive
from sbmcl.data.episodes import Kind, rng_for
from sbmcl.data.tasks import rotate
from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Question, Trained, learn_in_chunks, questions
from sbmcl.gallery.drawing import DOTS, Panel, Row, Strip, panels, sheet
from sbmcl.heads.classes import auroc
from sbmcl.likeness import check_generative, drawn
from sbmcl.methods.base import Method
from sbmcl.report import names
from sbmcl.report.figures import OTHER, STYLES
from sbmcl.state import map_tensors

COLUMNS = 10  # small pictures in a row; of longer streams the first tasks and shots are shown
SAMPLES = 4 * COLUMNS
CURVES = 5  # panels in a row
LONGEST = 200  # name of a file
LONG = 8  # values of a vector that is a curve by itself; the answers to shorter ones are strung together


@dataclass(frozen=True)
class Picture:
    caption: str
    canvas: Figure

    def write(self, folder: Path) -> Path:
        """A PNG whose name is the caption, which is how the report finds it."""
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^0-9A-Za-z]+", "-", self.caption).strip("-")
        path = folder / f"{name[:LONGEST]}.png"
        self.canvas.savefig(path, dpi=DOTS * self.canvas.dpi, metadata={"Software": None})
        return path


def gallery(
    runs: list[Trained],
    pair: tuple[int, int] = (5, 10),
    *,
    number: int = 0,
    at_mode: bool = False,
    steps: int | None = 50,
) -> Iterator[Picture]:
    """Every picture that there is of these runs after so many tasks and shots; what cannot be shown is refused at once.

    The stream is the one that an evaluation of the same setting asks as its episode `number`. Diffusion models draw by DDIM
    in so many `steps`, or by the ancestral sampler.
    """
    scene = Scene(runs, pair, number, at_mode, steps)
    return scene.pictures()


class Learner:
    """Who is shown: a name, and a method with what it knows after the stream."""

    def __init__(self, name: str, run: Trained, scene: "Scene"):
        self.name, self.run, self.scene = name, run, scene
        self.method: Method[Any] = run.method
        self.colour = STYLES.get(run.experiment.label, OTHER).light

    @cached_property
    def state(self) -> Any:
        return self.after(self.scene.episode.stream)

    @torch.no_grad()
    def after(self, stream: Examples) -> Any:
        return learn_in_chunks(self.method, self.method.init(1, rng=self._luck()), self._here(stream))

    @torch.no_grad()
    def answers(self, queries: Examples) -> Any:
        return self.method.predict(self.state, self._here(queries).x, rng=self._luck(), at_mode=self.scene.at_mode)

    def samples(self, n: int) -> Float[Tensor, "n c h w"]:
        at_mode, steps = self.scene.at_mode, self.scene.steps
        return drawn(self.method, self.state, n, rng=self._luck(), at_mode=at_mode, steps=steps)[0].cpu()

    @torch.no_grad()
    def novelty(self, stream: Examples, queries: Examples) -> Float[Tensor, "n"] | None:
        if type(self.method).novelty is Method.novelty:  # nothing has to be learned to know that it cannot tell
            return None
        found = self.method.novelty(self.after(stream), self._here(queries).x)
        return None if found is None else found[0].cpu()

    def scores(self, prediction: Any, queries: Examples) -> dict[str, Float[Tensor, "b n"]]:
        found = self.method.head.scores(prediction, self._here(queries).targets)
        return {name: score.cpu() for name, score in found.items()}

    def score(self, prediction: Any, queries: Examples) -> str:
        """The benchmark's metric, over all of these queries."""
        metric = self.method.head.metric
        return f"{metric} {self.scores(prediction, queries)[metric].mean().item():.3g}"

    def _here(self, examples: Examples) -> Examples:
        return map_tensors(lambda t: t.to(self.run.device), examples)

    def _luck(self) -> torch.Generator:
        return rng_for(0, f"method in {self.scene.question}", self.scene.number, self.run.device)


class Scene:
    """One stream, and who has learned it."""

    def __init__(self, runs: list[Trained], pair: tuple[int, int], number: int, at_mode: bool, steps: int | None):
        self.question, self.episode = common_stream(runs, pair, number)
        self.number, self.at_mode, self.steps = number, at_mode, steps
        self.kind: Kind = self.question.source.kind
        self.benchmark = names.benchmark(runs[0].experiment.benchmark)
        self.learners = [Learner(name, run, self) for name, run in zip(called(runs, at_mode), runs, strict=True)]
        if self.kind != "vector" and len(self.question.source.x_shape) != 3:
            raise ValueError(
                f"{self.question.data} holds vectors to be told apart, of which there is no picture to make; "
                f"'sbmcl evaluate' measures such a run"
            )
        if self.kind in ("binary", "generation"):
            for run in runs:
                check_generative(run, steps)

    def pictures(self) -> Iterator[Picture]:
        yield from SHOWN[self.kind](self)

    def stream_picture(self, draw: Callable[[str], Figure]) -> Picture:
        """The picture that is the same whoever learns."""
        title = f"{self.benchmark}: a training stream of {self._length()}"
        return Picture(title, draw(title))

    def picture(
        self, what: str, draw: Callable[[str], Figure], *, who: list[str] | None = None, part: str = ""
    ) -> Picture:
        """The caption names who is shown; in the picture they have names beside them. `part` of the stream was learned."""
        everybody = names.sentence(who or [learner.name for learner in self.learners])
        after = f"after {part}{self._length()}"
        return Picture(f"{self.benchmark}, {what} by {everybody} {after}", draw(f"{self.benchmark}: {what} {after}"))

    def stream_strips(self, x: Float[Tensor, "b n c h w"], notes: list[str] | None = None) -> list[Strip]:
        """Pictures of the stream, a task in a row."""
        shots = self.question.shape.shots
        return [
            Strip(
                self.name_of(task),
                x[0, task * shots : task * shots + min(shots, COLUMNS)],
                notes=() if notes is None else tuple(notes[task * shots : (task + 1) * shots]),
            )
            for task in range(min(self.question.shape.tasks, COLUMNS))
        ]

    def chosen(self, hardness: Float[Tensor, "n"] | None = None) -> tuple[Int[Tensor, "m"], tuple[str, ...]]:
        """Which queries are shown, of every task the first or the hardest, and what their groups are called."""
        shape = self.question.shape
        tasks = min(shape.tasks, COLUMNS)
        each = min(shape.queries, COLUMNS // tasks)
        place = torch.arange(each).expand(tasks, each)
        if hardness is not None:
            place = hardness.view(shape.tasks, shape.queries)[:tasks].topk(each).indices
        first = shape.queries * torch.arange(tasks).unsqueeze(1)
        return (first + place).flatten(), tuple(self.name_of(task) for task in range(tasks))

    def name_of(self, task: int) -> str:
        return f"{'function' if self.kind == 'vector' else 'class'} {task + 1}"

    def _length(self) -> str:
        shape = self.question.shape
        length = f"{names.plural(shape.tasks, 'task')} of {names.plural(shape.shots, 'shot')}"
        return length + (f", number {self.number}" if self.number else "")


def common_stream(runs: list[Trained], pair: tuple[int, int], number: int) -> tuple[Question, Episode]:
    """The stream that all of them are asked about; runs that would be asked different ones do not go side by side."""
    asked = [question for run in runs for question in questions(run, [pair])]
    streams = [question.episode(number) for question in asked]
    for run, stream in zip(runs, streams, strict=True):
        first = runs[0].experiment
        if run.experiment.benchmark != first.benchmark or not _alike(stream, streams[0]):
            raise ValueError(
                f"{run.experiment.recipe} ({run.experiment.benchmark}) is asked other streams than {first.recipe} "
                f"({first.benchmark}), so the two cannot stand side by side; show them one after the other"
            )
    return asked[0], streams[0]


def _alike(one: Episode, other: Episode) -> bool:
    parts = zip((one.stream, one.query), (other.stream, other.query), strict=True)
    return all(
        torch.equal(mine.x, theirs.x) and (mine.y is None or theirs.y is None or torch.equal(mine.y, theirs.y))
        for mine, theirs in parts
    )


def called(runs: list[Trained], at_mode: bool) -> list[str]:
    """As in the report; runs of one method by their recipes, those of one recipe by their seeds."""
    labels = [names.method(run.experiment.label + ("-map" if at_mode else "")) for run in runs]
    recipes = [run.experiment.recipe for run in runs]
    seeds = [f"{run.experiment.recipe}, seed {run.experiment.seed}" for run in runs]
    for found in (labels, recipes, seeds):
        if len(set(found)) == len(found):
            return found
    twice = Counter(seeds).most_common(1)[0][0]
    raise ValueError(
        f"several of the runs are {twice}, and nothing would tell them apart; show them one after the other"
    )


def classification(scene: Scene) -> Iterator[Picture]:
    """What each query is taken for, how surely, and which queries look like nothing learned."""
    stream, query = scene.episode.stream, scene.episode.query
    yield scene.stream_picture(lambda title: sheet(title, scene.stream_strips(stream.x)))
    answers = [(learner, learner.answers(query)) for learner in scene.learners]
    hardness = torch.stack([learner.scores(answer, query)["nll"][0] for learner, answer in answers]).mean(0)
    shown, groups = scene.chosen(hardness)
    shape = scene.question.shape
    examples = torch.cat([stream.x[0, :: shape.shots], torch.zeros_like(stream.x[0, :1])])  # grey for a class never met
    strips = [Strip("queries", query.x[0, shown], "hardest of each class")]
    for learner, answer in answers:
        confidence, place = (part[0, shown].cpu() for part in answer.softmax(-1).max(-1))
        wrong = tuple((place != query.targets[0, shown]).tolist())
        notes = tuple(
            f"{'✗ ' if mistaken else ''}{share:.0%}" for share, mistaken in zip(confidence.tolist(), wrong, strict=True)
        )
        detail = f"takes them for; {learner.score(answer, query)} of all"
        strips.append(Strip(learner.name, examples[place.clamp_max(shape.tasks)], detail, notes, wrong))
    yield scene.picture("classes found", lambda title: sheet(title, strips, groups))
    half = (shape.tasks + 1) // 2
    ranked = [strip for learner in scene.learners if (strip := _by_novelty(scene, learner, half))]
    if ranked:
        who, part = [strip.name for strip in ranked], f"{half} of "
        yield scene.picture("from familiar to novel", lambda title: sheet(title, ranked), who=who, part=part)


def completion(scene: Scene) -> Iterator[Picture]:
    """Upper halves, and what each learner puts beneath them."""
    stream, query = scene.episode.stream, scene.episode.query
    whole = torch.cat([stream.x, stream.targets], dim=-2)
    yield scene.stream_picture(lambda title: sheet(title, scene.stream_strips(whole)))
    shown, groups = scene.chosen()
    upper, lower = query.x[0, shown], query.targets[0, shown]
    strips = [
        Strip("given", torch.cat([upper, torch.full_like(lower, 0.5)], dim=-2)),
        Strip("truth", torch.cat([upper, lower], dim=-2)),
    ]
    for learner in scene.learners:
        prediction = learner.answers(query)
        completed = torch.cat([upper, prediction[0, shown].cpu()], dim=-2)
        strips.append(Strip(learner.name, completed, learner.score(prediction, query)))
    yield scene.picture("completions", lambda title: sheet(title, strips, groups))


def rotation(scene: Scene) -> Iterator[Picture]:
    """Turned pictures, and what they look like turned back by the angle that each learner finds."""
    stream, query = scene.episode.stream, scene.episode.query
    degrees = [f"{angle:.0f}°" for angle in _angle(stream.targets[0]).rad2deg().remainder(360).tolist()]
    yield scene.stream_picture(lambda title: sheet(title, scene.stream_strips(stream.x, degrees)))
    shown, groups = scene.chosen()
    turned, true = query.x[0, shown], _angle(query.targets[0, shown])
    strips = [Strip("turned", turned), Strip("truth", rotate(turned, -true), "turned back")]
    for learner in scene.learners:
        prediction = learner.answers(query)
        found = _angle(prediction[0, shown].cpu())
        off = (found - true + torch.pi).remainder(2 * torch.pi) - torch.pi
        notes = tuple(f"{angle:+.0f}°".replace("-", "\N{MINUS SIGN}") for angle in off.rad2deg().tolist())
        strips.append(Strip(learner.name, rotate(turned, -found), learner.score(prediction, query), notes))
    yield scene.picture("pictures turned back", lambda title: sheet(title, strips, groups))


def reconstruction(scene: Scene) -> Iterator[Picture]:
    """What is left of pictures that went through a code, then samples."""
    shown, groups = scene.chosen()
    yield from _stream_and_samples(scene)
    query = scene.episode.query
    some = Examples(query.x[:, shown], None, query.task[:, shown])
    strips = [Strip("originals", some.x[0])]
    strips += [Strip(learner.name, learner.answers(some)[0].cpu()) for learner in scene.learners]
    yield scene.picture("reconstructions", lambda title: sheet(title, strips, groups))


def generation(scene: Scene) -> Iterator[Picture]:
    yield from _stream_and_samples(scene)


def functions(scene: Scene) -> Iterator[Picture]:
    """Curves asked for and answered, within the band that the answer gives itself."""
    stream, query, shape = scene.episode.stream, scene.episode.query, scene.question.shape
    tasks, curve = min(shape.tasks, CURVES), stream.targets.shape[-1] >= LONG
    groups = tuple(scene.name_of(task) for task in range(tasks))

    def of(task: int, values: Float[Tensor, "b n k"], each: int) -> Float[Tensor, "m places"]:
        mine = values[0, task * each : (task + 1) * each].cpu()
        return mine if curve else mine.flatten().unsqueeze(0)

    learned = [Panel(of(task, stream.targets, shape.shots)) for task in range(tasks)]
    yield scene.stream_picture(lambda title: panels(title, [Row("learned", learned)], groups))
    rows = []
    for learner in scene.learners:
        prediction = learner.answers(query)
        mean = prediction if isinstance(prediction, Tensor) else prediction.mean
        spread = _deviation(prediction)
        found = []
        for task in range(tasks):
            deviation = None if spread is None else of(task, spread, shape.queries)[0]
            given = of(task, query.x, shape.queries)[0] if curve and query.x.shape == query.targets.shape else None
            truth = of(task, query.targets, shape.queries)[:1]
            found.append(Panel(truth, of(task, mean, shape.queries)[0], deviation, given))
        rows.append(Row(learner.name, found, learner.score(prediction, query), learner.colour))
    yield scene.picture("functions", lambda title: panels(title, rows, groups))


SHOWN: dict[Kind, Callable[[Scene], Iterator[Picture]]] = {
    "classes": classification,
    "vector": functions,
    "image": completion,
    "angle": rotation,
    "generation": generation,
    "binary": reconstruction,
}


def _stream_and_samples(scene: Scene) -> Iterator[Picture]:
    stream, query = scene.episode.stream, scene.episode.query
    yield scene.stream_picture(lambda title: sheet(title, scene.stream_strips(stream.x)))
    shown, _ = scene.chosen()
    strips = [Strip("drawings", query.x[0, shown], "not in the stream")]
    for learner in scene.learners:
        rows = learner.samples(SAMPLES).split(COLUMNS)
        strips += [Strip(learner.name if i == 0 else "", row) for i, row in enumerate(rows)]
    yield scene.picture("samples", lambda title: sheet(title, strips))


def _by_novelty(scene: Scene, learner: Learner, half: int) -> Strip | None:
    """Queries evenly through their order, asked after the first half of the tasks; those of the other half are marked."""
    stream, query = scene.episode.stream, scene.episode.query
    if half == scene.question.shape.tasks:
        return None
    novelty = learner.novelty(stream[: half * scene.question.shape.shots], query)
    if novelty is None:
        return None
    new = query.task[0] >= half
    order = novelty.argsort()[torch.linspace(0, len(novelty) - 1, min(COLUMNS, len(novelty))).round().long()]
    marked = tuple(new[order].tolist())
    notes = tuple("new" if novel else "learned" for novel in marked)
    return Strip(learner.name, query.x[0, order], f"AUROC {auroc(novelty[~new], novelty[new]):.3g}", notes, marked)


def _angle(direction: Float[Tensor, "n 2"]) -> Float[Tensor, "n"]:
    return torch.atan2(direction[:, 1], direction[:, 0])


def _deviation(prediction: Any) -> Float[Tensor, "b n k"] | None:
    if isinstance(prediction, LinearPredictive):
        return (prediction.aleatoric + prediction.epistemic).sqrt()
    return None
