from anabranch.api import autograph_experimental
from anabranch.frontend.platform.autograph import set_verbosity as set_verbosity, trace as trace

experimental = autograph_experimental
