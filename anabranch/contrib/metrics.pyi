from anabranch.tools.contributed_names import metrics

__getattr__ = metrics
