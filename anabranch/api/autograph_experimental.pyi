from anabranch.frontend.autograph.conversion import (
    do_not_convert as do_not_convert,
    set_loop_options as set_loop_options,
)
from anabranch.frontend.autograph.settings import Feature as Feature
