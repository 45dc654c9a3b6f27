"""Glyphs: an endless alphabet. A class is a random program of pen strokes, an example one noisy hand's drawing of it.

Needs no download, and only what an episode asks for is ever drawn, in a batch, on the device. A program follows from its
class number alone, by a hash. It knows nothing of any real alphabet; its habits (few strokes, mostly attached to one
another, lines and arcs and loops, upright directions, repeats) are those that alphabets share.

A stroke is a path of up to four pieces. Along piece q the direction of the pen turns steadily from a_q to a_q + t_q, so
that a piece is a line (t = 0), an arc or a loop; between pieces it jumps by a corner:

    a_0 = start,    a_q = a_(q-1) + t_(q-1) + corner_q,    position = integral of (cos, sin) of the direction

Every stroke but the first hangs on an earlier one: its contact point lies on (or, by a gap, beside) an anchor there.
"""

import math
from dataclasses import fields

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.data.episodes import EpisodeShape, Kind
from sbmcl.data.hand import Hand
from sbmcl.data.sampler import distinct
from sbmcl.data.tasks import Classification, Task
from sbmcl.episode import Episode, episode_of_tasks
from sbmcl.state import state

SIZE = 32
STROKES, PIECES = 5, 4  # at most, of a glyph and of a stroke
POINTS = 112
"""Where the pen is looked at along all strokes of a glyph together: less than two thirds of a pixel apart in most."""
EVERY = 1 << 40
"""Glyphs of one family."""
PEN, MARGIN = 1.55, 1.0
"""In pixels: the pen's width, and what stays white at the border."""
BLUR = 0.06
"""Share of its ink that a pixel gives to each neighbour in a row or column."""
LONGEST = 4.0
"""How much is drawn before the last piece begins, in sizes of the glyph."""
AT_ONCE = 320
"""Pictures inked at a time: what fits into a processor's cache."""

Pieces = Float[Tensor, "b s q"]


STILL = Hand(**dict.fromkeys((field.name for field in fields(Hand)), 0.0))


@state
class Programs:
    """The pen's instructions for each of a batch of glyphs; lengths are in sizes of the glyph, angles in radians."""

    start: Float[Tensor, "b s"]  # first direction of a stroke
    length: Float[Tensor, "b s q"]  # 0 for pieces that there are not
    turn: Float[Tensor, "b s q"]
    corner: Float[Tensor, "b s q"]  # before a piece; 0 before the first
    anchor: Int[Tensor, "b s"]  # on which earlier stroke a stroke hangs
    anchor_at: Float[Tensor, "b s"]  # and where, as a share of that stroke
    contact_at: Float[Tensor, "b s"]  # with which share of its own
    gap: Float[Tensor, "b s 2"]
    size: Float[Tensor, "b"]  # longer side, in pixels


class GlyphSource:
    """Episodes of drawn characters. Different `family` numbers never share a glyph."""

    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    kind: Kind

    def __init__(
        self,
        *,
        family: int = 0,
        classes: int = EVERY,
        hand: Hand | None = None,
        task: Task | None = None,
        query_cap: int = 50,
    ):
        if not 1 <= classes <= EVERY:
            raise ValueError(f"there can be from 1 to {EVERY:,} glyphs, but got {classes}")
        self.family, self.classes, self.query_cap = family, classes, query_cap
        self.hand = hand or Hand()
        self.task = task or Classification()
        self.x_shape, self.y_shape = self.task.shapes((1, SIZE, SIZE))
        self.kind = self.task.kind

    def check(self, shape: EpisodeShape) -> None:
        if shape.tasks > self.classes:
            raise ValueError(f"there are {self.classes} glyphs here, fewer than {shape.tasks} tasks")

    def draw(self, shape: EpisodeShape, batch: int, rng: torch.Generator) -> Episode:
        self.check(shape)
        number = distinct(torch.full((batch,), self.classes, device=rng.device), shape.tasks, rng)
        pictures = self.pictures(number, shape.shots + shape.queries, rng)
        x, y = self.task(pictures, rng)
        return episode_of_tasks(x, y, shape.shots)

    def pictures(self, number: Int[Tensor, "*b"], each: int, rng: torch.Generator) -> Float[Tensor, "*b n 1 h w"]:
        """`each` drawings of every class, white +1, ink -1."""
        flat = number.flatten() + self.family * EVERY
        ink = drawings(programs(flat), each, self.hand, rng)
        return (1 - 2 * ink).view(*number.shape, each, 1, SIZE, SIZE)


def programs(number: Int[Tensor, "b"]) -> Programs:
    """The glyphs of these numbers."""
    dice = Dice(number)
    strokes = 1 + dice.choice([0.17, 0.33, 0.28, 0.15, 0.07])
    pieces = 1 + dice.choice([0.45, 0.30, 0.15, 0.10], STROKES)
    pieces = torch.where((strokes == 1).unsqueeze(1), (pieces + 1).clamp(max=PIECES), pieces)
    straight, upright = dice.between(0.1, 0.9), dice.between(0.2, 1.2)  # a style: how angular, how true to the axes

    length, turn = _pieces(dice, straight)
    corner = _corners(dice)
    start = 45 * dice.choice([0.30, 0.06, 0.34, 0.06, 0.04, 0.06, 0.08, 0.06], STROKES)
    start = (start + dice.between(-20.0, 20.0, STROKES) * upright.unsqueeze(1)).deg2rad()
    length, turn, corner = _repeated(dice, length, turn, corner)
    for s in range(1, STROKES):  # some strokes are copies of the one before, as they are or in the mirror
        copied = dice.uniform() < 0.2
        mirrored = copied & (dice.uniform() < 0.4)
        sign = torch.where(mirrored, -1.0, 1.0).unsqueeze(1)
        before = torch.where(mirrored, math.pi - start[:, s - 1], start[:, s - 1])
        start[:, s] = torch.where(copied, before, start[:, s])
        pieces[:, s] = torch.where(copied, pieces[:, s - 1], pieces[:, s])
        length[:, s] = torch.where(copied.unsqueeze(1), length[:, s - 1], length[:, s])
        turn[:, s] = torch.where(copied.unsqueeze(1), sign * turn[:, s - 1], turn[:, s])
        corner[:, s] = torch.where(copied.unsqueeze(1), sign * corner[:, s - 1], corner[:, s])

    dot = (dice.uniform(STROKES) < 0.06).unsqueeze(-1)  # a tight curl
    place = torch.arange(PIECES, device=number.device)
    length = torch.where(dot, 0.3 * (place == 0), length)
    turn = torch.where(dot, 4 * math.pi, turn)
    there = place < pieces.unsqueeze(-1)
    there &= (torch.arange(STROKES, device=number.device) < strokes.unsqueeze(1)).unsqueeze(-1)
    length = length * there
    before = (length.flatten(1).cumsum(1) - length.flatten(1)).view_as(length)
    there &= before < LONGEST
    size = 14.5 + 1.2 * there.sum((1, 2)) + 5 * (dice.uniform(3).sum(1) - 1.5)  # the more there is, the larger
    return Programs(start, length * there, turn, corner, *_relations(dice), size.clamp(8, 28))


def _pieces(dice: "Dice", straight: Float[Tensor, "b"]) -> tuple[Pieces, Pieces]:
    """Length and turn of lines, arcs and loops."""
    each = (STROKES, PIECES)
    kind, line = dice.uniform(*each), straight.view(-1, 1, 1)
    is_line, is_loop = kind < line, kind > 1 - 0.12 * (1 - line)
    turn = torch.where(is_loop, dice.between(250.0, 380.0, *each), dice.between(45.0, 215.0, *each)).deg2rad()
    radius = torch.where(is_loop, dice.between(0.08, 0.28, *each), dice.between(0.12, 0.5, *each))
    length = torch.where(is_line, dice.between(0.25, 1.0, *each), radius * turn)
    return length, torch.where(is_line, 0.0, turn * dice.sign(*each))


def _corners(dice: "Dice") -> Pieces:
    """What the direction jumps by before each piece: nothing, or about a few angles."""
    each = (STROKES, PIECES)
    kind = dice.choice([0.30, 0.12, 0.33, 0.17, 0.08], *each)
    about = 45 * kind + (kind > 0) * dice.between(-15.0, 15.0, *each)
    corner = about.deg2rad() * dice.sign(*each)
    corner[..., 0] = 0.0
    return corner


def _repeated(dice: "Dice", length: Pieces, turn: Pieces, corner: Pieces) -> tuple[Pieces, Pieces, Pieces]:
    """In some strokes all pieces are alike, turning the same way (as in m) or to and fro (as in a zigzag)."""
    alike = (dice.uniform(STROKES) < 0.25).unsqueeze(-1)
    swing = torch.where((dice.uniform(STROKES, 1) < 0.5), -1.0, 1.0) ** torch.arange(PIECES, device=length.device)
    repeated_corner = swing * corner[..., 1:2]
    repeated_corner[..., 0] = 0.0
    return (
        torch.where(alike, length[..., :1], length),
        torch.where(alike, swing * turn[..., :1], turn),
        torch.where(alike, repeated_corner, corner),
    )


def _relations(dice: "Dice") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The stroke each one hangs on, where on it, by which point of its own, and how far beside it."""
    anchor = (dice.uniform(STROKES) * torch.arange(STROKES, device=dice.device)).long()
    anchor_at, contact_at = (
        torch.where(
            dice.uniform(STROKES) < along, dice.between(0.1, 0.9, STROKES), dice.choice([start, 1 - start], STROKES)
        )
        for along, start in ((0.6, 0.5), (0.33, 0.8))
    )
    apart = dice.uniform(STROKES) < 0.3
    angle = (90 * dice.choice([0.25] * 4, STROKES) + dice.between(-40.0, 40.0, STROKES)).deg2rad()
    gap = torch.stack([angle.cos(), angle.sin()], -1) * (dice.between(0.15, 0.6, STROKES) * apart).unsqueeze(-1)
    return anchor, anchor_at, contact_at, gap


class Dice:
    """Uniform numbers that follow from a class number and from how many were taken before (splitmix64)."""

    def __init__(self, number: Int[Tensor, "b"]):
        self.number, self.device, self.taken = number, number.device, 0

    def uniform(self, *each: int) -> Float[Tensor, "b ..."]:
        count = math.prod(each)
        place = torch.arange(self.taken + 1, self.taken + count + 1, device=self.device)
        self.taken += count
        bits = _mixed(_mixed(self.number).unsqueeze(1) + place * -0x61C8864680B583EB)
        return ((bits & 0xFFFFFF).float() / (1 << 24)).view(-1, *each)

    def between(self, low: float, high: float, *each: int) -> Float[Tensor, "b ..."]:
        return low + (high - low) * self.uniform(*each)

    def sign(self, *each: int) -> Float[Tensor, "b ..."]:
        return torch.where(self.uniform(*each) < 0.5, -1.0, 1.0)

    def choice(self, shares: list[float], *each: int) -> Int[Tensor, "b ..."]:
        bounds = torch.tensor(shares[:-1], device=self.device).cumsum(0)
        return (self.uniform(*each).unsqueeze(-1) >= bounds).sum(-1)


def _mixed(z: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """The finaliser of splitmix64; the shifts are of unsigned numbers, the products wrap around."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * -0x40A7B892E31B1A47
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * -0x6B2FB644ECCEEE15
    return z ^ (z >> 31 & (1 << 33) - 1)


@state
class Walk:
    """Which piece each point of a glyph is on, at which share of it."""

    piece: Int[Tensor, "b p"]  # counted through all strokes
    share: Float[Tensor, "b p"]
    points: Float[Tensor, "b s q"]  # on each piece


def walk(program: Programs) -> Walk:
    """Points evenly along the strokes, one stroke after the other."""
    length = program.length.flatten(1)
    end = length.cumsum(1)
    at = (torch.arange(POINTS, device=length.device) + 0.5) / POINTS * end[:, -1:]
    piece = torch.searchsorted(end, at, right=True).clamp(max=STROKES * PIECES - 1)
    passed = at - (end - length).gather(1, piece)
    points = torch.zeros_like(length).scatter_add_(1, piece, torch.ones_like(at))
    return Walk(piece, passed / length.gather(1, piece), points.view_as(program.length))


def trace(program: Programs, path: Walk, n: int, hand: Hand, rng: torch.Generator) -> Float[Tensor, "b n p 2"]:
    """The points of `n` drawings of each glyph, in sizes of the glyph."""
    batch, device = len(program.size), program.size.device

    def noise(*size: int) -> Tensor:
        return torch.randn((batch, n, *size), generator=rng, device=device)

    def at_points(value: Float[Tensor, "b n s q"]) -> Float[Tensor, "b n p"]:
        return value.flatten(2).gather(2, path.piece.unsqueeze(1).expand(-1, n, -1))

    several = (STROKES, PIECES)
    turn = program.turn.unsqueeze(1) * (1 + hand.turn * noise(*several))
    corner = program.corner.unsqueeze(1) + math.radians(hand.corner) * noise(*several)
    length = program.length.unsqueeze(1) * (hand.length * noise(*several)).exp()
    direction = program.start[:, None, :, None] + (corner + F.pad(turn, (1, -1))).cumsum(-1)
    wave = 2 * math.pi * torch.tensor([[2.0], [5.0]], device=device) * torch.linspace(0, 1, POINTS, device=device)
    wobble = math.radians(hand.wobble) * (noise(4) @ torch.cat([wave.sin(), wave.cos()]) / 2**0.5)
    angle = at_points(direction) + at_points(turn) * path.share.unsqueeze(1) + wobble
    stride = at_points(length / path.points.unsqueeze(1).clamp(min=1))
    line = (torch.stack([angle.cos(), angle.sin()], -1) * stride.unsqueeze(-1)).cumsum(2)
    return _hung(line, program, path, hand.place * noise(STROKES, 2))


def _hung(
    line: Float[Tensor, "b n p 2"], program: Programs, path: Walk, slip: Float[Tensor, "b n s 2"]
) -> Float[Tensor, "b n p 2"]:
    """Move each stroke to where it belongs: its contact point to its anchor, plus the gap and the hand's slip."""
    points = path.points.sum(2)
    first = points.cumsum(1) - points
    stroke = path.piece // PIECES

    def point(which: Int[Tensor, "b"], share: Float[Tensor, "b"]) -> Float[Tensor, "b n 2"]:
        of = which.unsqueeze(1)
        index = first.gather(1, of).squeeze(1) + share * (points.gather(1, of).squeeze(1) - 1).clamp(min=0)
        index = index.round().long().clamp(max=POINTS - 1).view(-1, 1, 1, 1)
        return line.gather(2, index.expand(-1, line.shape[1], 1, 2)).squeeze(2)

    moves = [torch.zeros_like(slip[:, :, 0])]
    for s in range(1, STROKES):
        anchor = program.anchor[:, s]
        moved = torch.stack(moves, 2).gather(2, anchor.view(-1, 1, 1, 1).expand(-1, line.shape[1], 1, 2)).squeeze(2)
        to = point(anchor, program.anchor_at[:, s]) + moved + program.gap[:, None, s] + slip[:, :, s]
        moves.append(to - point(torch.full_like(anchor, s), program.contact_at[:, s]))
    index = stroke[:, None, :, None].expand(line.shape)
    return line + torch.stack(moves, 2).gather(2, index)


def drawings(program: Programs, n: int, hand: Hand, rng: torch.Generator) -> Float[Tensor, "b n h w"]:
    """Ink, from 0 to 1, of `n` drawings of each glyph."""
    path = walk(program)
    ideal = trace(program, path, 1, STILL, rng)
    extent = (ideal.amax(2) - ideal.amin(2)).clamp(min=0.05)
    longer = extent.amax(2, keepdim=True)
    square = (longer / extent).clamp(max=2) ** 0.4  # characters fill their squares better than strokes at random do
    scale = (program.size.view(-1, 1, 1) / longer * square).unsqueeze(2)
    line = _placed(trace(program, path, n, hand, rng) * scale, hand, rng)
    stride = (line[:, :, 1:] - line[:, :, :-1]).norm(dim=-1)
    stroke = path.piece // PIECES
    stride = stride * (stroke[:, 1:] == stroke[:, :-1]).unsqueeze(1)
    covered = (F.pad(stride, (0, 1)) + F.pad(stride, (1, 0))) / 2
    width = PEN * (hand.width * torch.randn((*line.shape[:2], 1), generator=rng, device=line.device)).exp()
    ink = covered * width
    parts = zip(line.flatten(0, 1).split(AT_ONCE), ink.flatten(0, 1).split(AT_ONCE), strict=True)
    return torch.cat([_inked(*part) for part in parts]).unflatten(0, line.shape[:2])


def _placed(line: Float[Tensor, "b n p 2"], hand: Hand, rng: torch.Generator) -> Float[Tensor, "b n p 2"]:
    """Pixels: each drawing turned, sheared, scaled and put somewhere near the middle, inside the picture."""
    rotation, shear, wide, high, right, down = torch.randn((6, *line.shape[:2]), generator=rng, device=line.device)
    rotation, shear = math.radians(hand.rotation) * rotation, math.radians(hand.shear) * shear
    wide, high = (hand.scale * wide).exp(), (hand.scale * high).exp()
    rows = [
        torch.stack([wide * rotation.cos(), wide * (shear - rotation).sin()], -1),
        torch.stack([high * rotation.sin(), high * (shear - rotation).cos()], -1),
    ]
    line = line @ torch.stack(rows, -1)
    low, high = line.amin(2), line.amax(2)
    room = SIZE - 2 * MARGIN
    shrink = (room / (high - low).amax(-1, keepdim=True)).clamp(max=1)
    half = (high - low) / 2 * shrink
    centre = SIZE / 2 + hand.shift * torch.stack([right, down], -1)
    centre = torch.minimum(torch.maximum(centre, MARGIN + half), SIZE - MARGIN - half)
    return (line - ((low + high) / 2).unsqueeze(2)) * shrink.unsqueeze(2) + centre.unsqueeze(2)


def _inked(line: Float[Tensor, "m p 2"], ink: Float[Tensor, "m p"]) -> Float[Tensor, "m h w"]:
    """Every point leaves its ink on the four pixels around it, in proportion to nearness; then all is blurred."""
    corner = (line - 0.5).floor()
    (right, down), (left, up) = (line - 0.5 - corner).unbind(-1), (corner + 0.5 - line + 1).unbind(-1)
    picture = torch.arange(len(line), device=line.device).unsqueeze(1)
    pixel = (picture * SIZE + corner[..., 1].long()) * SIZE + corner[..., 0].long()
    paper = torch.zeros(len(line) * SIZE * SIZE, device=line.device)
    for offset, share in ((0, up * left), (1, up * right), (SIZE, down * left), (SIZE + 1, down * right)):
        paper.index_add_(0, (pixel + offset).flatten(), (share * ink).flatten())
    row = torch.tensor([BLUR, 1 - 2 * BLUR, BLUR], device=line.device)
    blurred = F.conv2d(paper.view(-1, 1, SIZE, SIZE), (row.unsqueeze(1) * row).view(1, 1, 3, 3), padding=1)
    return blurred.squeeze(1).clamp(max=1)
