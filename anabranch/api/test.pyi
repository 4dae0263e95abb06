from unittest import mock as mock

from anabranch.testing.benchmark import Benchmark as Benchmark, benchmark_config as benchmark_config
from anabranch.testing.gradient_checker import (
    compute_gradient as compute_gradient,
    compute_gradient_error as compute_gradient_error,
)
from anabranch.testing.served_cluster import create_local_cluster as create_local_cluster
from anabranch.testing.stubs import StubOutForTesting as StubOutForTesting
from anabranch.testing.test_case import (
    TestCase as TestCase,
    assert_equal_graph_def as assert_equal_graph_def,
    main as main,
)
from anabranch.testing.test_surroundings import (
    get_temp_dir as get_temp_dir,
    gpu_device_name as gpu_device_name,
    is_built_with_cuda as is_built_with_cuda,
    is_built_with_gpu_support as is_built_with_gpu_support,
    is_built_with_rocm as is_built_with_rocm,
    is_gpu_available as is_gpu_available,
    test_src_dir_path as test_src_dir_path,
)
