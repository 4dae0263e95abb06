"""What answers a request of another process."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.distributed import wire
from anabranch.distributed.peers import Peer
from anabranch.distributed.wire import Header, MessageKind
from anabranch.errors import InternalError, OpError, ResourceExhaustedError, UnknownError
from anabranch.runtime.messages import Buffer, Frames


class Answer:
    """What answers one request, once."""

    def __init__(self, peer: Peer, header: Header) -> None:
        self._peer = peer
        self._header = header
        self._channel = peer.channel
        #: of two threads that answer, one takes what is in it
        self._once = [None]

    def __call__(self, frames: Frames) -> None:
        if not self._is_first():
            raise InternalError(None, None, f"a request of {self._peer!r} was answered twice")
        try:
            self._send(MessageKind.REPLY, frames)
        # too large for a message, or for the room: whoever asked has to hear something
        except ResourceExhaustedError as error:
            self._send(MessageKind.FAILURE, [wire.encode_failure(wire.Failure(error.error_code, error.message))])

    def fail(self, error: Exception) -> None:
        """Answers by an error, if there was no answer yet."""
        if self._is_first():
            known = (
                error if isinstance(error, OpError) else UnknownError(None, None, f"{type(error).__name__}: {error}")
            )
            self._send(MessageKind.FAILURE, [wire.encode_failure(wire.Failure(known.error_code, known.message))])

    def _is_first(self) -> bool:
        try:
            self._once.pop()
        except IndexError:
            return False
        return True

    def _send(self, kind: MessageKind, frames: Sequence[Buffer]) -> None:
        self._peer.answer(kind, self._header.lane, self._header.request, frames, self._channel)
