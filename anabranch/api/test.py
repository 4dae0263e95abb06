"""`tf.test`."""

from __future__ import annotations

from anabranch.testing.gradient_checker import compute_gradient, compute_gradient_error
from anabranch.testing.test_case import (
    TestCase,
    assert_equal_graph_def,
    get_temp_dir,
    gpu_device_name,
    is_built_with_cuda,
    is_gpu_available,
    main,
    mock,
    test_src_dir_path,
)

__all__ = [
    "TestCase",
    "assert_equal_graph_def",
    "compute_gradient",
    "compute_gradient_error",
    "get_temp_dir",
    "gpu_device_name",
    "is_built_with_cuda",
    "is_gpu_available",
    "main",
    "mock",
    "test_src_dir_path",
]
