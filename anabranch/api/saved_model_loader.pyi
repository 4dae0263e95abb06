from anabranch.serving.loader import (
    load as load,
    maybe_saved_model_directory as maybe_saved_model_directory,
)
