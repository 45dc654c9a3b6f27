"""The outer loop: episodes in, trained networks out. It names no method and no data set.

Every step's episode and random numbers follow from (seed, step) alone, so a run that was killed goes on bit for bit from its
last checkpoint. Several processes may train as one (`sbmcl.team`).
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sbmcl.data.episodes import EpisodeSource, rng_for
from sbmcl.experiment import Experiment, Training
from sbmcl.methods.base import Method
from sbmcl.progress import Progress
from sbmcl.runs import RunFolder
from sbmcl.team import Deserted, Team, share_statistics


class Diverged(RuntimeError):
    """The loss is no longer a number."""


class Interrupted(RuntimeError):
    """Stopped on request, with a checkpoint."""


@dataclass
class Learner:
    """All that changes while training; what a checkpoint holds."""

    method: Method[Any]
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None
    descent: torch.optim.SGD | None = None  # of the method's `plain_descent`; it remembers nothing
    step: int = 0
    seconds: float = 0.0
    best: float = math.inf

    @property
    def evaluated(self) -> Method[Any]:
        """The weights to judge: the running average where there is one."""
        return self.method if self.average is None else cast(Method[Any], self.average.module)

    def state(self) -> dict[str, Any]:
        average = None if self.average is None else self.average.state_dict()
        here = {"step": self.step, "seconds": self.seconds, "best": self.best}
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": average,
            **here,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.step, self.seconds, self.best = state["step"], state["seconds"], state["best"]


def train(
    experiment: Experiment[Any, Any], folder: RunFolder, device: torch.device, *, show: bool = True
) -> Method[Any]:
    """Meta-train from the folder's last checkpoint, or from the start, to the end; returns the weights to evaluate."""
    training, team = experiment.training, Team.current()
    source, validation = experiment.data.source("train", device), experiment.data.source("validation")
    assert source is not None, "only a validation split may be switched off"
    if training.steps == 0:
        method = new_method(experiment, source, device)
        folder.save_weights("last", method, 0)
        return method
    learner = new_learner(experiment, source, device)
    if (saved := folder.load_checkpoint(device)) is not None:
        learner.restore(saved)
    if learner.step >= training.steps:
        return learner.evaluated

    if team.leads:
        folder.sweep()
        folder.rewind_log(learner.step)
    began, meter = time.perf_counter() - learner.seconds, Meter()
    with (
        Progress(training.steps, learner.step, enabled=show and team.leads) as progress,
        log_of(folder if team.leads else None, learner.step) as log,
        stop_signals() as stop,
    ):
        while learner.step < training.steps:
            try:
                meter.add(one_step(learner, experiment, source, device))
                stop.asked = team.any(stop.asked)
            except torch.linalg.LinAlgError as error:  # pyright: ignore  # NaN has no factors
                raise Diverged(_divergence(folder, learner.step)) from error
            except Deserted as error:
                raise Deserted(_desertion(folder, learner.step, error)) from error
            learner.seconds = time.perf_counter() - began
            finished = learner.step == training.steps

            def due(every: int, finished: bool = finished) -> bool:
                return finished or learner.step % every == 0

            checkpoint = stop.asked or due(training.checkpoint_every)
            if checkpoint or due(training.log_every):
                means = team.mean_of(meter.means())
                if not math.isfinite(means["loss"]) or (checkpoint and not is_finite(learner.method)):
                    raise Diverged(_divergence(folder, learner.step))
                lr = learning_rate(training, learner.step - 1)
                log(step=learner.step, seconds=learner.seconds, lr=lr, **means)
                progress.update(learner.step, training.episodes, means)
            if validation and due(training.validate_every):
                score = validate(learner.evaluated, validation, training, device)
                log(step=learner.step, validation=score)
                progress.note(f"step {learner.step:,}: validation {learner.method.head.metric} {score:.5f}")
                if score < learner.best:
                    learner.best = score
                    if team.leads:
                        folder.save_weights("best", learner.evaluated, learner.step)
            if checkpoint and team.leads:
                folder.save_weights("last", learner.evaluated, learner.step)
                folder.save_checkpoint(learner.state())  # after them: a run that ends in between writes them once more
            if stop.asked and not finished:
                raise Interrupted(f"stopped at step {learner.step:,}; go on with: sbmcl train {folder.path} --resume")
    return learner.evaluated


def steps_within(
    experiment: Experiment[Any, Any], seconds: float, device: torch.device, *, measured_for: float = 5.0
) -> int:
    """How many steps, with the validations between them, fit into a time at the pace of a throw-away learner here."""
    training = experiment.training
    source, validation = experiment.data.source("train", device), experiment.data.source("validation")
    assert source is not None, "only a validation split may be switched off"
    learner = new_learner(experiment, source, device)

    def seconds_of(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        is_finite(learner.method)  # waits for the device
        return time.perf_counter() - began

    def step() -> None:
        one_step(learner, experiment, source, device)

    for _ in range(3):  # the first ones choose kernels and fill caches
        seconds_of(step)
    paces = [seconds_of(step)]
    while sum(paces) < measured_for and len(paces) < 50:
        paces.append(seconds_of(step))
    check = seconds_of(lambda: validate(learner.method, validation, training, device)) if validation else 0.0
    pace = sum(paces) / len(paces) + check / training.validate_every
    return max(1, int((seconds - check) / pace))


def new_method(experiment: Experiment[Any, Any], source: EpisodeSource, device: torch.device) -> Method[Any]:
    """As it is before the first step; the seed decides its weights."""
    torch.manual_seed(experiment.seed)
    method = experiment.method.build(source).to(device)
    method.bf16 = use_bf16(experiment.training.precision, method, device)
    return method


def new_learner(experiment: Experiment[Any, Any], source: EpisodeSource, device: torch.device) -> Learner:
    training = experiment.training
    method = new_method(experiment, source, device)
    if (team := Team.current()).size > 1:
        team.check(training.episodes)
        share_statistics(method)
    average = None
    if training.ema:
        average = AveragedModel(method, multi_avg_fn=get_ema_multi_avg_fn(training.ema), use_buffers=True)
    if training.compile:
        for network in method.children():
            network.compile()
    groups = method.plain_descent()
    apart = {id(weight) for group in groups for weight in group["params"]}
    weights = [weight for weight in method.parameters() if id(weight) not in apart]
    optimizer = torch.optim.AdamW(weights, training.lr, weight_decay=training.weight_decay, fused=True)
    return Learner(method, optimizer, average, torch.optim.SGD(groups) if groups else None)


def one_step(
    learner: Learner, experiment: Experiment[Any, Any], source: EpisodeSource, device: torch.device
) -> dict[str, Tensor]:
    """Draw, learn and be asked, then improve the networks: step and seed decide everything."""
    training, method, team = experiment.training, learner.method.train(), Team.current()
    whole = source.draw(training.shape, training.episodes, rng_for(experiment.seed, "train", learner.step, device))
    episode = team.share(whole)
    rng = rng_for(experiment.seed, "method" if team.leads else f"method {team.rank}", learner.step, device)
    torch.manual_seed(rng.initial_seed())  # dropout takes no generator
    method.meta_step = learner.step
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(training, learner.step)
    losses = method.meta_loss(episode, rng=rng)
    method.zero_grad()
    losses.total.backward()
    team.average([weight.grad for weight in method.parameters() if weight.grad is not None])
    if training.clip:
        nn.utils.clip_grad_norm_(learner.optimizer.param_groups[0]["params"], training.clip)
    learner.optimizer.step()
    if learner.descent is not None:
        learner.descent.step()
    if learner.average is not None:
        learner.average.update_parameters(method)
    learner.step += 1
    return {"loss": losses.total.detach(), **losses.parts}


def learning_rate(training: Training, step: int) -> float:
    rise = min(1.0, (step + 1) / training.warmup) if training.warmup else 1.0
    if training.schedule == "halve":
        return rise * training.lr * 0.5 ** (step // training.halve_every)
    if training.schedule == "cosine":
        done = max(0, step - training.warmup) / max(1, training.steps - training.warmup)
        return rise * training.lr * 0.5 * (1 + math.cos(math.pi * done))
    return rise * training.lr


@torch.no_grad()
def validate(method: Method[Any], source: EpisodeSource, training: Training, device: torch.device) -> float:
    """The mean score over the same validation episodes every time."""
    method.eval()
    scores = []
    for index in range(training.validation_episodes):
        episode = source.draw(training.shape, 1, rng_for(0, "validation", index)).to(device)
        rng = rng_for(0, "validation method", index, device)
        state = method.learn(method.init(1, rng=rng), episode.stream)
        scores.append(method.score(state, episode.query, rng=rng)[method.head.metric].mean())
    return torch.stack(scores).mean().item()


def use_bf16(precision: str, method: Method[Any], device: torch.device) -> bool:
    """Whether networks run in bfloat16; left to itself, where the hardware multiplies it and it pays for the method."""
    if precision != "auto":
        return precision == "bf16"
    supported = torch.cpu._is_avx512_bf16_supported() if device.type == "cpu" else True
    return supported and method.gains_from_bf16


class Meter:
    """Means of the losses since the last look; looking is the only time a device is waited for."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = 0

    def add(self, losses: dict[str, Tensor]) -> None:
        self.sums = {name: value + self.sums[name] if self.steps else value for name, value in losses.items()}
        self.steps += 1

    def means(self) -> dict[str, float]:
        means = {name: value.item() / self.steps for name, value in self.sums.items()}
        self.sums, self.steps = {}, 0
        return means


@torch.no_grad()
def is_finite(method: nn.Module) -> bool:
    """Whether every weight is a number: a gradient can overflow where the loss did not."""
    return bool(torch.stack([weight.isfinite().all() for weight in method.parameters()]).all())


@contextmanager
def log_of(folder: RunFolder | None, step: int) -> Iterator[Callable[..., None]]:
    """What is logged goes into the folder's log.jsonl and, where TensorBoard is installed, into its events."""
    if folder is None:  # another process of the team writes
        yield lambda **_: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield folder.log
        return

    def log(step: int, **values: int | float) -> None:
        folder.log(step=step, **values)
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1) as writer:
        yield log


class StopSignals:
    asked = False


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Ctrl-C and SIGTERM ask for a stop after the step in hand; a second Ctrl-C stops at once."""
    stop = StopSignals()

    def ask(number: int, frame: Any) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kept(folder: RunFolder) -> str:
    kept = folder.checkpoint_step()
    return f"the checkpoint of step {kept:,} is kept" if kept else "no checkpoint had been written yet"


def _desertion(folder: RunFolder, step: int, error: Deserted) -> str:
    return (
        f"another process of the team was lost in step {step + 1:,} ({error}); {_kept(folder)} in {folder.path}. Go on with "
        f"--resume, with as many processes as there are now."
    )


def _divergence(folder: RunFolder, step: int) -> str:
    return (
        f"training diverged: NaN or infinity by step {step:,}; {_kept(folder)} in {folder.path}. A lower --training.lr, "
        f"--training.clip 1 or --training.precision fp32 usually cures it."
    )
