from anabranch.contrib.clustering import KMeansClustering as KMeansClustering
from anabranch.estimator.kmeans import KMeansGraph

KMeans = KMeansGraph
