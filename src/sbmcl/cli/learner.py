"""`sbmcl learn`, `predict`, `merge`, `forget` and `inspect`: a deployed learner in a folder."""

import json
from collections.abc import Hashable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sbmcl.cli.common import Exit, Failure, aside, console, shown

if TYPE_CHECKING:
    from sbmcl.data.reading import Problems
    from sbmcl.stream import StreamLearner
    from sbmcl.stream.reading import Batch

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="LEARNER")]
Data = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATA...")]


def learn(
    learner: Folder,
    data: Data,
    /,
    run: Path | None = None,
    belief: Literal["isotropic", "normal-gamma", "matrix-normal"] | None = None,
    fast: bool = False,
    source: str | None = None,
    label: str = "label",
    targets: tuple[str, ...] = (),
    strict: bool = False,
) -> None:
    """Teach a learner in a folder some more examples.

    Files are learned whole or, if anything goes wrong, not at all. Of standard input (-) every line is learned as it comes,
    and answered when it is on the disk.

    Args:
        learner: Its folder; a new one needs --run or --belief.
        data: Folders of pictures, .npz, .csv, .parquet or .jsonl files, or - for JSON lines: {"x": [...], "y": "cat"}.
        run: Begin a new learner on the networks of this run of GeMCL, PN or ALPaCA.
        belief: Begin a new learner of vectors, with no network.
        fast: Let a new learner add up floating-point numbers: exact to rounding, and encoding many examples at once.
        source: Whom or what the examples come from, so that all of it can be forgotten; a JSON line may name its own.
        label: The column of labels, in tables.
        targets: The columns that a regression predicts, in tables.
        strict: Refuse the first record that cannot be used, instead of skipping and counting such records.
    """
    from sbmcl.data.reading import Problems
    from sbmcl.stream import StreamLearner
    from sbmcl.stream.files import holds_learner

    known, problems = holds_learner(learner), Problems(strict)
    if known and (run is not None or belief is not None):
        raise Failure(f"{shown(learner)} is a learner already; --run and --belief begin a new one", Exit.USAGE)
    if not known and (run is None) == (belief is None):
        raise Failure(f"{shown(learner)} is no learner yet; begin one with either --run or --belief", Exit.USAGE)
    one = StreamLearner.load(learner, journal=True) if known else None
    if run is not None:
        one = StreamLearner.load(run, exact=not fast)
    regression = belief == "matrix-normal" if one is None else not one.has_classes
    column = None if regression else label
    found = read(data, one, problems, regression=regression, label=column, targets=targets, source=source)
    first = list(islice(found, 1))
    if not first:
        raise ValueError(f"no example that could be used in {' '.join(data)}; {'; '.join(problems.messages)}")
    if one is None:
        wide = 1 if first[0].y is None or not regression else len(first[0].y[0])
        one = StreamLearner.from_encoder(
            None, belief or "isotropic", dim=first[0].x.shape[-1], targets=wide, exact=not fast
        )
    every = labelled(chain(first, found))
    if data == ("-",):
        if not known:
            one.save(learner, journal=True)
        for batch in every:
            one.partial_fit(batch.x, batch.y, batch.source)
            say({"learned": one.examples_} | ident(batch, 0))
        one.save(learner)
    else:
        part = one.empty()
        for batch in every:
            part.partial_fit(batch.x, batch.y, batch.source)
        one.absorb(part)
        if not known:
            one.save(learner)
    one.close()
    aside.print(f"{shown(learner)}: {one}", markup=False, soft_wrap=True)
    skipped(problems)


def predict(
    learner: Folder,
    data: Data,
    /,
    confidence: float = 0.0,
    label: str | None = None,
    targets: tuple[str, ...] = (),
    strict: bool = False,
) -> None:
    """Ask a learner, and print a JSON line for every example.

    A line has the label, its probability and the novelty of the example, or the mean of a regression with the two parts
    of its variance; what a JSON line of the input calls its id is said again. The learner does not change.

    Args:
        learner: Its folder.
        data: Folders of pictures, .npz, .csv, .parquet or .jsonl files, or - for JSON lines: {"x": [...]}.
        confidence: Labels that are less probable are null.
        label: The column of labels in tables, or any word for arrays that have some; answers are then given by label, with
            the right one beside them.
        targets: Columns of a table to leave out.
        strict: Refuse the first record that cannot be used, instead of skipping and counting such records.
    """
    from sbmcl.data.reading import Problems
    from sbmcl.stream import StreamLearner

    one, problems = StreamLearner.load(learner), Problems(strict)
    for batch in read(data, one, problems, regression=not one.has_classes, label=label, targets=targets):
        for row, answer in enumerate(answers(one, batch, confidence)):
            say(ident(batch, row) | answer)
    skipped(problems)


def merge(
    learners: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="LEARNER...")],
    /,
    out: Annotated[Path, tyro.conf.arg(aliases=("-o",))],
) -> None:
    """Make a learner that knows what several know; what they began with counts once.

    Args:
        learners: Their folders. They need the same networks, prior and grid.
        out: The folder of the new one.
    """
    from sbmcl.stream import StreamLearner
    from sbmcl.stream.files import holds_learner

    if len(learners) < 2:
        raise Failure("merge what? sbmcl merge A B --out C", Exit.USAGE)
    if holds_learner(out):
        raise Failure(f"{shown(out)} is a learner already; name a new folder with --out", Exit.USAGE)
    first, *others = (StreamLearner.load(path) for path in learners)
    for other in others:
        first = first.merge(other)
    first.save(out)
    console.print(f"{shown(out)}: {first}", markup=False, soft_wrap=True)


def forget(learner: Folder, /, source: str) -> None:
    """Forget all examples of a source, as if they had never been seen.

    They are gone from the folder too. What meta-training saw is not forgotten by this, and neither are copies of the folder.

    Args:
        learner: Its folder.
        source: Whom or what they came from, as 'sbmcl inspect' lists it.
    """
    from sbmcl.stream import StreamLearner

    one = StreamLearner.load(learner, journal=True)
    count = one.forget(source=among(one.sources_, source))
    one.close()
    console.print(f"{shown(learner)}: {count:,} examples forgotten; {one}", markup=False, soft_wrap=True)


def inspect(learner: Folder, /, json: bool = False) -> None:
    """Say what a learner knows: classes, counts, sources, size and hash.

    Args:
        learner: Its folder.
        json: All of it, for programs; otherwise the twenty largest classes and sources.
    """
    from sbmcl.stream import StreamLearner

    one = StreamLearner.load(learner)
    bytes_ = sum(path.stat().st_size for path in learner.iterdir())
    if json:
        say(
            {
                "belief": type(one.prior).__name__,
                "encoder": one.encoder.identity,
                "exact": one.exact,
                "examples": one.examples_,
                "classes": [
                    {"label": plain(k), "id": one.class_ids_[k], "examples": n} for k, n in one.counts_.items()
                ],
                "sources": [{"source": plain(k), "examples": n} for k, n in one.sources_.items()],
                "bytes": bytes_,
                "digest": one.digest(),
            }
        )
        return
    console.print(str(one), markup=False, soft_wrap=True)
    console.print(f"encoder  {one.encoder.identity}", markup=False, soft_wrap=True)
    console.print(f"digest   {one.digest()}", soft_wrap=True)
    console.print(f"size     {bytes_:,} bytes in {shown(learner)}", markup=False, soft_wrap=True)
    for title, counts in (("classes", one.counts_), ("sources", one.sources_)):
        largest = sorted(counts.items(), key=lambda item: -item[1])[:20]
        if counts:
            console.print(f"[bold]{len(counts):,} {title}[/]{', the largest:' if len(counts) > 20 else ''}")
        for name, count in largest:
            console.print(f"  {count:>9,}  {plain(name)}", markup=False, soft_wrap=True)


def read(
    data: tuple[str, ...], one: "StreamLearner | None", problems: "Problems", *, source: Hashable = None, **how: Any
) -> "Iterator[Batch]":
    """All batches of all data, as the learner takes them."""
    from sbmcl.stream.reading import How, batches

    if not data or ("-" in data and len(data) > 1):
        raise Failure("name files or folders with examples, or - alone for JSON lines on standard input", Exit.USAGE)
    shape = None if one is None else one.encoder.x_shape
    return (b for origin in data for b in batches(origin, How(shape, source=source, **how), problems))


def labelled(found: "Iterator[Batch]") -> "Iterator[Batch]":
    for batch in found:
        if batch.y is None:
            raise ValueError(
                'there are examples with nothing to learn from: lines need "y", a regression its --targets'
            )
        yield batch


def answers(one: "StreamLearner", batch: "Batch", confidence: float) -> Iterator[dict[str, Any]]:
    novelty = one.novelty(batch.x).tolist()
    if not one.has_classes:
        found = one.predict_distribution(batch.x)
        for row, new in enumerate(novelty):
            yield {name: value[row].tolist() for name, value in vars(found).items()} | {"novelty": new}
        return
    share, classes = one.predict_proba(batch.x), one.classes_.tolist()
    given = batch.y if batch.ids is None and any(batch.y) else [None] * len(novelty)
    for row, (best, new) in enumerate(zip(share.argmax(1).tolist(), novelty, strict=True)):
        sure = float(share[row, best])
        answer = {"label": plain(classes[best]) if sure >= confidence else None, "confidence": sure, "novelty": new}
        yield answer if given[row] is None else answer | {"given": given[row]}


def ident(batch: "Batch", row: int) -> dict[str, Any]:
    return {} if batch.ids is None or batch.ids[row] is None else {"id": batch.ids[row]}


def plain(label: Hashable) -> Any:
    from sbmcl.stream.labels import to_json

    return to_json(label)


def among(sources: dict[Hashable, int], text: str) -> Hashable:
    """A source as it is written on a command line: a text or, if there is none, what its JSON says."""
    from sbmcl.stream.labels import from_json

    if text in sources:
        return text
    try:
        return from_json(json.loads(text))
    except ValueError:
        return text


def say(line: dict[str, Any]) -> None:
    """At once, for whoever waits at the other end of a pipe."""
    print(json.dumps(line), flush=True)


def skipped(problems: "Problems") -> None:
    for message in problems.messages:
        aside.print(f"skipped: {message}", markup=False, soft_wrap=True)
    if problems.total:
        aside.print(f"{problems.total:,} records were skipped; --strict refuses them instead")
