"""Keys to network inputs on the learner's device. The codecs' tables move there once."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.packing import (
    BIT,
    CONSTANT,
    HALF,
    SINGLE,
    FeatureLayout,
    HistoryCodec,
    PackedHistoryCodec,
    PackedStateCodec,
    StateCodec,
    TableHistoryCodec,
    TableStateCodec,
)

Keys = NDArray[Any] | Tensor


class StateInputs(Protocol):
    """Information-state keys of one player to features and legal masks."""

    @property
    def width(self) -> int:
        """Number of features F."""
        ...

    def read(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Features f4[n, F] and legal mask f4[n, A] (1 where legal), on the device."""
        ...


class TableStateInputs:
    """Keys are numbers: two gathers from resident tables."""

    def __init__(self, codec: TableStateCodec, device: torch.device) -> None:
        self._features = torch.from_numpy(np.ascontiguousarray(codec.features, np.float32)).to(device)
        self._legal = torch.from_numpy(codec.legal.astype(np.float32)).to(device)
        self._offset = codec.offset

    @property
    def width(self) -> int:
        """Number of features."""
        return self._features.shape[1]

    @property
    def features(self) -> Tensor:
        """f4[N, F] of all the player's information states."""
        return self._features

    @property
    def legal(self) -> Tensor:
        """f4[N, A] of all the player's information states."""
        return self._legal

    def rows(self, keys: Keys) -> Tensor:
        """[n] rows of the tables."""
        index = torch.as_tensor(keys, device=self._features.device)
        return index - self._offset if self._offset else index

    def read(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Rows of the tables."""
        index = self.rows(keys)
        return self._features.index_select(0, index), self._legal.index_select(0, index)


class DecodedStateInputs:
    """Keys are packed features: decoded by the codec, which is the fastest on a CPU."""

    def __init__(self, codec: StateCodec, device: torch.device) -> None:
        self._codec = codec
        self._device = device

    @property
    def width(self) -> int:
        """Number of features."""
        return self._codec.num_features

    def read(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Unpacked features."""
        features, legal = self._codec.decode(_as_numpy(keys))
        return (
            torch.from_numpy(features).to(self._device),
            torch.from_numpy(legal.astype(np.float32)).to(self._device),
        )


class _DeviceLayout:
    """`FeatureLayout.decode` on a device, with the same bits. Bytes behind the layout's own are ignored."""

    def __init__(self, layout: FeatureLayout, device: torch.device) -> None:
        counts = [int(np.count_nonzero(layout.kind == kind)) for kind in (BIT, HALF, SINGLE)]
        self._bits, halves, _ = counts
        self._ends = -(-self._bits // 8), -(-self._bits // 8) + 2 * halves, layout.num_bytes
        self._eight = _bits_of_bytes(device)
        packed_order = np.concatenate([np.flatnonzero(layout.kind == kind) for kind in (BIT, HALF, SINGLE, CONSTANT)])
        self._place = torch.from_numpy(np.argsort(packed_order)).to(device)
        self._constant = torch.from_numpy(layout.constant[layout.kind == CONSTANT]).to(device)
        self._scale = torch.from_numpy(layout.scale).to(device)

    def decode(self, packed: Tensor) -> Tensor:
        """u1[n, K or more] -> features f4[n, F] divided by the layout's scale."""
        end_bits, end_halves, end = self._ends
        parts = [_unpacked(packed[:, :end_bits], self._eight)[:, : self._bits]]
        for part, kind in ((packed[:, end_bits:end_halves], torch.float16), (packed[:, end_halves:end], torch.float32)):
            if part.shape[1]:
                # A copy of its own: numbers must begin where their size divides the address.
                parts.append(part.clone(memory_format=torch.contiguous_format).view(kind).float())
        parts.append(self._constant.expand(len(packed), -1))
        return torch.cat(parts, dim=1).index_select(1, self._place) / self._scale


def _bits_of_bytes(device: torch.device) -> Tensor:
    """f4[256, 8]: the bits of every byte, the highest first."""
    every = np.arange(256, dtype=np.uint8)[:, None]
    return torch.from_numpy(np.unpackbits(every, axis=1).astype(np.float32)).to(device)


def _unpacked(packed: Tensor, eight: Tensor) -> Tensor:
    """u1[n, K] -> f4[n, 8 K], given `_bits_of_bytes`."""
    return eight.index_select(0, packed.reshape(-1).int()).view(len(packed), 8 * packed.shape[1])


class PackedStateInputs:
    """Keys are packed features: sent to the device as they are, a bit a feature, and decoded there."""

    def __init__(self, codec: PackedStateCodec, device: torch.device) -> None:
        self._device = device
        self._codec = codec
        self._layout = _DeviceLayout(codec.layout, device)
        self._eight = _bits_of_bytes(device)

    @property
    def width(self) -> int:
        """Number of features."""
        return self._codec.num_features

    def read(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Unpacked features and legal masks."""
        packed = torch.as_tensor(keys, device=self._device)
        legal = _unpacked(packed[:, self._codec.layout.num_bytes :], self._eight)
        return self._layout.decode(packed), legal[:, : self._codec.num_actions].contiguous()


class HistoryInputs(Protocol):
    """History keys to what both players know."""

    @property
    def width(self) -> int:
        """Number of features of both players together."""
        ...

    def read(self, keys: Keys) -> Tensor:
        """Features f4[n, F0 + F1] on the device."""
        ...


class TableHistoryInputs:
    """Keys are decision rows: each player's view is gathered and the two are joined."""

    def __init__(self, codec: TableHistoryCodec, device: torch.device) -> None:
        self._views = [
            torch.from_numpy(np.ascontiguousarray(v, np.float32)).to(device) for v in (codec.views0, codec.views1)
        ]
        self._view = torch.from_numpy(np.ascontiguousarray(codec.view)).to(device)

    @property
    def width(self) -> int:
        """Number of features."""
        return self._views[0].shape[1] + self._views[1].shape[1]

    def read(self, keys: Keys) -> Tensor:
        """Joined rows of both players' tables."""
        view = self._view.index_select(0, torch.as_tensor(keys, device=self._view.device))
        return torch.cat([table.index_select(0, view[:, p]) for p, table in enumerate(self._views)], dim=1)


class PackedHistoryInputs:
    """Keys are packed features of both players: sent to the device as they are and decoded there."""

    def __init__(self, codec: PackedHistoryCodec, device: torch.device) -> None:
        self._device = device
        self._first = codec.layout0.num_bytes
        self._width = codec.num_features
        self._layouts = _DeviceLayout(codec.layout0, device), _DeviceLayout(codec.layout1, device)

    @property
    def width(self) -> int:
        """Number of features."""
        return self._width

    def read(self, keys: Keys) -> Tensor:
        """Features f4[n, F0 + F1]."""
        packed = torch.as_tensor(keys, device=self._device)
        own, other = (
            layout.decode(part) for layout, part in zip(self._layouts, (packed, packed[:, self._first :]), strict=True)
        )
        return torch.cat([own, other], dim=1)


class DecodedHistoryInputs:
    """Keys are packed features of both players: decoded by the codec, which is the fastest on a CPU."""

    def __init__(self, codec: PackedHistoryCodec, device: torch.device) -> None:
        self._codec = codec
        self._device = device

    @property
    def width(self) -> int:
        """Number of features."""
        return self._codec.num_features

    def read(self, keys: Keys) -> Tensor:
        """Unpacked features."""
        return torch.from_numpy(self._codec.features(_as_numpy(keys))).to(self._device)


def _as_numpy(keys: Keys) -> NDArray[Any]:
    return keys.cpu().numpy() if isinstance(keys, Tensor) else keys


def state_inputs(codec: StateCodec, device: torch.device) -> StateInputs:
    """The fastest reader of a codec's information-state keys."""
    if isinstance(codec, TableStateCodec):
        return TableStateInputs(codec, device)
    if device.type != "cpu":
        return PackedStateInputs(codec, device)
    return DecodedStateInputs(codec, device)


def history_inputs(codec: HistoryCodec, device: torch.device) -> HistoryInputs:
    """The fastest reader of a codec's history keys."""
    if isinstance(codec, TableHistoryCodec):
        return TableHistoryInputs(codec, device)
    if device.type != "cpu":
        return PackedHistoryInputs(codec, device)
    return DecodedHistoryInputs(codec, device)
