from anabranch.frontend.resources.staging import (
    MapStagingArea as MapStagingArea,
    StagingArea as StagingArea,
)
