from anabranch.tools.contributed_names import losses

__getattr__ = losses
