from anabranch.contrib.clustering import (
    COSINE_DISTANCE as COSINE_DISTANCE,
    KMEANS_PLUS_PLUS_INIT as KMEANS_PLUS_PLUS_INIT,
    RANDOM_INIT as RANDOM_INIT,
    SQUARED_EUCLIDEAN_DISTANCE as SQUARED_EUCLIDEAN_DISTANCE,
    KMeansClustering as KMeansClustering,
)
from anabranch.estimator.kmeans import KMeansGraph

KMeans = KMeansGraph
