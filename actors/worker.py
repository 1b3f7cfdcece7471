"""A worker: plays chunks of traversals. What it returns depends on the chunk and the profile, never on the worker."""

from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.exact import ExactSampler
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import Baseline, OutcomeSampler
from actors.sampling.traversals import Traversals
from actors.strategies.strategy import Profile
from buffers.chunks import Chunk

Sampler = OutcomeSampler | ExternalSampler | ExactSampler


class Worker:
    """One sampler with its chance streams, one set per traverser. Streams with a state tie chunks to their order."""

    def __init__(self, seed: int, sampler: Sampler, streams: tuple[ChanceStreams, ChanceStreams]) -> None:
        self.streams = streams
        self._seed = seed
        self._sampler = sampler

    def traverse(self, chunk: Chunk, profile: Profile, baseline: Baseline | None) -> Traversals:
        """Play the chunk's traversals under `profile`; outcome sampling corrects its estimates by `baseline`."""
        iteration, traverser, _ = chunk.id
        keys = lanes.start(self._seed, iteration, traverser, chunk.first, chunk.count)
        streams = self.streams[traverser]
        if isinstance(self._sampler, OutcomeSampler):
            return self._sampler.sample(iteration, traverser, keys, profile, streams, baseline)
        return self._sampler.sample(iteration, traverser, keys, profile, streams)
