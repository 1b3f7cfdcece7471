"""Packed keys: what names an information state or a history in few bytes, and the codecs that read it.

A codec is the only reader of a key. All codecs are frozen dataclasses of numpy arrays and integers, so that a
learner can put the same tables on its device.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from buffers.rows import Column

CONSTANT, BIT, HALF, SINGLE = range(4)
"""Kinds of features: no bits, one bit, float16, float32."""
_ALLOWED = {CONSTANT: "the constant {}", BIT: "0 or 1", HALF: "a number that float16 holds exactly"}

Index = slice | NDArray[np.int64]


class FeatureStatistics:
    """What a probe learnt about each feature: range, whether all values were 0 or 1, or exact in float16."""

    def __init__(self, num_features: int) -> None:
        self.count = 0
        self.low = np.full(num_features, np.inf, np.float32)
        self.high = np.full(num_features, -np.inf, np.float32)
        self.binary = np.ones(num_features, np.bool_)
        self.half = np.ones(num_features, np.bool_)

    def observe(self, features: NDArray[np.float32]) -> None:
        """Takes features f4[n, F] in; raises ValueError for values that are not finite."""
        if features.ndim != 2 or features.shape[1] != len(self.low):
            raise ValueError(f"features have shape {features.shape}; it must be (n, {len(self.low)})")
        if not len(features):
            return
        if not np.isfinite(features).all():
            row, feature = np.argwhere(~np.isfinite(features))[0]
            raise ValueError(f"feature {feature} is {features[row, feature]}; features must be finite")
        features = features.astype(np.float32, copy=False)
        self.count += len(features)
        self.low = np.minimum(self.low, features.min(axis=0))
        self.high = np.maximum(self.high, features.max(axis=0))
        self.binary &= ((features == 0) | (features == 1)).all(axis=0)
        self.half &= (_as_half(features) == features).all(axis=0)

    def merge(self, other: "FeatureStatistics") -> None:
        """Takes in what another probe learnt about the same features."""
        self.count += other.count
        self.low = np.minimum(self.low, other.low)
        self.high = np.maximum(self.high, other.high)
        self.binary &= other.binary
        self.half &= other.half

    def layout(self, constant_bits: bool = False) -> "FeatureLayout":
        """The smallest layout that holds all values seen; raises ValueError when none were.

        With `constant_bits`, a feature that was always 0 (or always 1) still gets a bit: safer for
        games whose probe may miss rare states.
        """
        if not self.count:
            raise ValueError("no features were observed: the probe must visit at least one state")
        kind = np.full(len(self.low), SINGLE, np.uint8)
        kind[self.half] = HALF
        kind[self.binary] = BIT
        kind[(self.low == self.high) & ~(self.binary & constant_bits)] = CONSTANT
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        constant = np.where(kind == CONSTANT, self.low, np.float32(0))
        return FeatureLayout(kind, constant, np.where(largest > 0, largest, np.float32(1)))


@dataclass(frozen=True, eq=False)
class FeatureLayout:
    """How features f4[F] are packed: bits first, then float16, then float32; constants take no room.

    `kind` u1[F] (CONSTANT, BIT, HALF, SINGLE), `constant` f4[F] (0 where it varies), `scale` f4[F] (largest
    magnitude seen, 1 for none): decoding for networks divides by it. Lossless, but that -0 becomes 0
    in a bit or constant: a value that the layout cannot hold is refused.
    """

    kind: NDArray[np.uint8]
    constant: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def learn(cls, samples: NDArray[np.float32], constant_bits: bool = False) -> "FeatureLayout":
        """The layout for sample features f4[n, F]. For many batches use `FeatureStatistics`."""
        statistics = FeatureStatistics(samples.shape[1])
        statistics.observe(samples)
        return statistics.layout(constant_bits)

    @property
    def num_features(self) -> int:
        """F."""
        return len(self.kind)

    @cached_property
    def selectors(self) -> tuple[Index, Index, Index, Index]:
        """Features of each kind, in order; a slice where they stand side by side."""
        constant, bit, half, single = (_selector(np.flatnonzero(self.kind == k)) for k in range(4))
        return constant, bit, half, single

    @cached_property
    def _ends(self) -> tuple[int, int, int]:
        """Where bits, halves and singles end in a key, in bytes."""
        bits, halves, singles = (int(np.count_nonzero(self.kind == k)) for k in (BIT, HALF, SINGLE))
        end_bits = -(-bits // 8)
        return end_bits, end_bits + 2 * halves, end_bits + 2 * halves + 4 * singles

    @property
    def num_bytes(self) -> int:
        """K: bytes of packed features."""
        return self._ends[2]

    @cached_property
    def _num_bits(self) -> int:
        return int(np.count_nonzero(self.kind == BIT))

    def pack(self, features: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Features f4[n, F] -> uint8[n, K]; ValueError names a feature that the layout cannot hold."""
        if features.ndim != 2 or features.shape[1] != self.num_features:
            raise ValueError(f"features have shape {features.shape}; it must be (n, {self.num_features})")
        constant, bit, half, single = self.selectors
        bits = features[:, bit]
        ones = bits == 1
        halves = _as_half(features[:, half])
        if not (
            (features[:, constant] == self.constant[constant]).all()
            and ((bits != 0) == ones).all()  # what is not 0 is 1
            and (features[:, half] == halves).all()
        ):
            self._refuse(features)
        end_bits, end_halves, end = self._ends
        packed = np.empty((len(features), end), np.uint8)
        packed[:, :end_bits] = _pack_bits(ones)
        packed[:, end_bits:end_halves] = _bytes_of(halves)
        packed[:, end_halves:] = _bytes_of(features[:, single].astype("<f4", copy=False))
        return packed

    def unpack(self, packed: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """uint8[n, K] -> features f4[n, F] as they were packed, not scaled; written to `out` if given."""
        constant, bit, half, single = self.selectors
        end_bits, end_halves, end = self._ends
        features = np.empty((len(packed), self.num_features), np.float32) if out is None else out
        features[:, constant] = self.constant[constant]
        features[:, bit] = np.unpackbits(packed[:, :end_bits], axis=1, count=self._num_bits)
        features[:, half] = np.ascontiguousarray(packed[:, end_bits:end_halves]).view("<f2")
        features[:, single] = np.ascontiguousarray(packed[:, end_halves:end]).view("<f4")
        return features

    def decode(self, packed: NDArray[np.uint8], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """uint8[n, K] -> features f4[n, F] divided by `scale`, as networks eat them; into `out` if given."""
        features = self.unpack(packed, out)
        if not self._unscaled:
            features /= self.scale
        return features

    @cached_property
    def _unscaled(self) -> bool:
        return bool((self.scale == 1).all())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The layout as plain arrays: `FeatureLayout(**layout.arrays())` is the same layout."""
        return {"kind": self.kind, "constant": self.constant, "scale": self.scale}

    def _refuse(self, features: NDArray[np.float32]) -> None:
        kind = self.kind
        wrong = (kind == CONSTANT) & (features != self.constant)
        wrong |= (kind == BIT) & (features != 0) & (features != 1)
        wrong |= (kind == HALF) & (_as_half(features) != features)
        row, feature = np.argwhere(wrong)[0]
        allowed = _ALLOWED[int(kind[feature])].format(self.constant[feature])
        raise ValueError(
            f"feature {feature} is {features[row, feature]}, but the probe of the game saw only values that "
            f"are {allowed}: raise the number of episodes of the probe"
        )


class States(NamedTuple):
    """The decisions of one player among n histories: `index` i8[m] into the n, and their `keys` [m, ...]."""

    index: NDArray[np.int64]  # type: ignore[assignment]  # hides a method of tuple that nobody needs
    keys: NDArray[Any]


class Histories(NamedTuple):
    """Decoded histories: `features` f4[n, F0 + F1], `player` i1[n] to act, `legal` bool[n, A].

    `states` holds the keys of the information states per player, whose keys may differ in length.
    """

    features: NDArray[np.float32]
    player: NDArray[np.int8]
    legal: NDArray[np.bool_]
    states: tuple[States, States]

    def state_keys(self, player: int) -> States:
        """Where `player` is to act, and the keys of the information states there (for its `StateCodec`)."""
        return self.states[player]


@dataclass(frozen=True, eq=False)
class TableStateCodec:
    """Enumerated games: key i4 -> row `key - offset` of `features` f4[N, F] and `legal` bool[N, A].

    `offset` is the player's first key. `features` are as networks eat them (see `scaled`).
    """

    features: NDArray[np.float32]
    legal: NDArray[np.bool_]
    offset: int = 0

    @property
    def num_features(self) -> int:
        """F."""
        return int(self.features.shape[1])

    @property
    def num_actions(self) -> int:
        """A."""
        return int(self.legal.shape[1])

    @property
    def num_keys(self) -> int:
        """N."""
        return len(self.features)

    @property
    def column(self) -> Column:
        """The column of a key."""
        return Column("key", np.int32)

    def decode(self, keys: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Keys i4[n] -> (features f4[n, F], legal bool[n, A])."""
        index = keys - self.offset
        return self.features[index], self.legal[index]


@dataclass(frozen=True, eq=False)
class PackedStateCodec:
    """Large games: key u1[K] = packed features, then legal actions as bits."""

    layout: FeatureLayout
    num_actions: int

    @property
    def num_features(self) -> int:
        """F."""
        return self.layout.num_features

    @property
    def column(self) -> Column:
        """The column of a key."""
        return Column("key", np.uint8, (self.layout.num_bytes + -(-self.num_actions // 8),))

    def encode(self, features: NDArray[np.float32], legal: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """(features f4[n, F] unscaled, legal bool[n, A]) -> keys u1[n, K]; ValueError as `pack`."""
        return np.concatenate([self.layout.pack(features), _pack_bits(legal)], axis=1)

    def decode(self, keys: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Keys u1[n, K] -> (features f4[n, F] divided by the layout's scale, legal bool[n, A])."""
        split = self.layout.num_bytes
        return self.layout.decode(keys[:, :split]), _legal(keys[:, split:], self.num_actions)


@dataclass(frozen=True, eq=False)
class TableHistoryCodec:
    """Enumerated games: key i4 -> row of the tables over the H decision histories.

    `view` i4[H, 2]: what players 0 and 1 see there, rows of `views0` f4[V0, F0] and `views1` f4[V1, F1],
    scaled as networks eat them; `player` i1[H] to act; `state` i4[H] its information state; `legal` bool
    [H, A].
    """

    views0: NDArray[np.float32]
    views1: NDArray[np.float32]
    view: NDArray[np.int32]
    player: NDArray[np.int8]
    state: NDArray[np.int32]
    legal: NDArray[np.bool_]

    @property
    def num_features(self) -> int:
        """F0 + F1."""
        return int(self.views0.shape[1] + self.views1.shape[1])

    @property
    def num_actions(self) -> int:
        """A."""
        return int(self.legal.shape[1])

    @property
    def num_keys(self) -> int:
        """H."""
        return len(self.player)

    @property
    def column(self) -> Column:
        """The column of a key."""
        return Column("history", np.int32)

    def decode(self, keys: NDArray[np.int32]) -> Histories:
        """Keys i4[n] -> `Histories`."""
        view, player, state = self.view[keys], self.player[keys], self.state[keys]
        features = np.concatenate([self.views0[view[:, 0]], self.views1[view[:, 1]]], axis=1)
        first, second = (np.flatnonzero(player == p) for p in (0, 1))
        states = States(first, state[first]), States(second, state[second])
        return Histories(features, player, self.legal[keys], states)


@dataclass(frozen=True, eq=False)
class PackedHistoryCodec:
    """Large games: key u1[K] = packed features of player 0, of player 1, legal bits, player to act.

    `layout0` and `layout1` are those of the players' `PackedStateCodec`s, learnt also where the other acts.
    """

    layout0: FeatureLayout
    layout1: FeatureLayout
    num_actions: int

    @property
    def num_features(self) -> int:
        """F0 + F1."""
        return self.layout0.num_features + self.layout1.num_features

    @property
    def _splits(self) -> tuple[int, int, int]:
        first = self.layout0.num_bytes
        second = first + self.layout1.num_bytes
        return first, second, second + -(-self.num_actions // 8)

    @property
    def column(self) -> Column:
        """The column of a key."""
        return Column("history", np.uint8, (self._splits[2] + 1,))

    def encode(
        self,
        features0: NDArray[np.float32],
        features1: NDArray[np.float32],
        legal: NDArray[np.bool_],
        player: NDArray[np.int8],
    ) -> NDArray[np.uint8]:
        """Unscaled features f4[n, F0] and f4[n, F1], legal bool[n, A], player i1[n] -> keys u1[n, K]."""
        packed = [self.layout0.pack(features0), self.layout1.pack(features1), _pack_bits(legal)]
        return np.concatenate([*packed, player.astype(np.uint8)[:, None]], axis=1)

    def acting(self, keys: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Keys u1[n, K] -> the acting players' state keys, where both players' are of one length."""
        first, second, last = self._splits
        own = np.where(keys[:, last:], keys[:, first:second], keys[:, :first])
        return np.concatenate([own, keys[:, second:last]], axis=1)

    def features(self, keys: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Keys u1[n, K] -> the features of `Histories` alone."""
        first, second, _ = self._splits
        split = self.layout0.num_features
        features = np.empty((len(keys), self.num_features), np.float32)
        self.layout0.decode(keys[:, :first], features[:, :split])
        self.layout1.decode(keys[:, first:second], features[:, split:])
        return features

    def decode(self, keys: NDArray[np.uint8]) -> Histories:
        """Keys u1[n, K] -> `Histories`; its state keys equal those of the players' `PackedStateCodec`s."""
        first, second, last = self._splits
        packed = keys[:, :first], keys[:, first:second]
        bits = keys[:, second:last]
        player = keys[:, last].astype(np.int8)
        states = []
        for p in (0, 1):
            index = np.flatnonzero(player == p)
            states.append(States(index, np.concatenate([packed[p][index], bits[index]], axis=1)))
        return Histories(self.features(keys), player, _legal(bits, self.num_actions), (states[0], states[1]))


StateCodec = TableStateCodec | PackedStateCodec
HistoryCodec = TableHistoryCodec | PackedHistoryCodec


def scaled(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """A feature table f4[N, F], every column divided by its largest magnitude (1 for a column of zeros)."""
    if not len(features):
        return features
    largest = np.abs(features).max(axis=0)
    return (features / np.where(largest > 0, largest, 1)).astype(np.float32)


def _as_half(features: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):  # becomes infinite, hence different, hence noticed
        return features.astype("<f2")


def _selector(index: NDArray[np.int64]) -> Index:
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def _bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize * values.shape[1])


def _pack_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """`np.packbits` of every row; numpy is many times slower along short rows."""
    rows, width = bits.shape
    count = -(-width // 8)
    padded = np.zeros((rows, 8 * count), np.bool_)
    padded[:, :width] = bits
    return np.packbits(padded).reshape(rows, count)


def _legal(bits: NDArray[np.uint8], num_actions: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits, axis=1, count=num_actions).view(np.bool_)
