from anabranch.api import flags as flags
from anabranch.frontend.platform.app import run as run
