"""Keys to network inputs on the learner's device. The codecs' tables move there once."""

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.packing import HistoryCodec, PackedHistoryCodec, StateCodec, TableHistoryCodec, TableStateCodec

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
    """Keys are packed features: decoded by the codec."""

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


class DecodedHistoryInputs:
    """Keys are packed features of both players: decoded by the codec."""

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
    return DecodedStateInputs(codec, device)


def history_inputs(codec: HistoryCodec, device: torch.device) -> HistoryInputs:
    """The fastest reader of a codec's history keys."""
    if isinstance(codec, TableHistoryCodec):
        return TableHistoryInputs(codec, device)
    return DecodedHistoryInputs(codec, device)
