from anabranch.serving.builder import (
    SavedModelBuilder as SavedModelBuilder,
)
