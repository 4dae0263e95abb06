from anabranch.frontend.staging import (
    MapStagingArea as MapStagingArea,
    StagingArea as StagingArea,
)
