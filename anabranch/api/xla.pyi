from anabranch.api import xla_experimental

experimental = xla_experimental
