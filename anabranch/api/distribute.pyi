from anabranch.api import distribute_cluster_resolver
from anabranch.distributed.server import Server as Server

cluster_resolver = distribute_cluster_resolver
