from anabranch.frontend.platform.memory import (
    BytesInUse as BytesInUse,
    BytesLimit as BytesLimit,
    MaxBytesInUse as MaxBytesInUse,
)
