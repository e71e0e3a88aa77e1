"""CUDA's driver through NVIDIA's own bindings (the package cuda-bindings)."""

from __future__ import annotations

from typing import Any

from musebench.core.errors import OutOfMemory, UnsupportedError


class CudaDriver:
    """See `musebench_vmm.cuda.Driver`; `index` is the device's number as torch counts.

    Raises:
        UnsupportedError: the bindings are not installed, or the device has no virtual memory.
    """

    def __init__(self, index: int) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise UnsupportedError(
                f"pool 'vmm' needs the package cuda-bindings on --device cuda ({error}); install "
                "musebench-vmm[cuda], or use --pool geometric"
            ) from error
        self._driver: Any = driver
        device = self._call("cuDeviceGet", index)
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        if not self._call("cuDeviceGetAttribute", attribute, device):
            raise UnsupportedError(f"cuda:{index} has no virtual memory management; use --pool geometric")
        self._properties = driver.CUmemAllocationProp()
        self._properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._properties.location.id = index
        self._access = driver.CUmemAccessDesc()
        self._access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._access.location.id = index
        self._access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

    def granularity(self) -> int:
        flags = self._driver.CUmemAllocationGranularity_flags
        least = flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        return int(self._call("cuMemGetAllocationGranularity", self._properties, least))

    def free_bytes(self) -> int:
        free, _ = self._call("cuMemGetInfo")
        return int(free)

    def reserve(self, size: int) -> int:
        return int(self._call("cuMemAddressReserve", size, 0, 0, 0))

    def free(self, address: int, size: int) -> None:
        self._call("cuMemAddressFree", address, size)

    def create(self, size: int) -> Any:
        return self._call("cuMemCreate", size, self._properties, 0)

    def map(self, address: int, size: int, handle: Any) -> None:
        self._call("cuMemMap", address, size, 0, handle, 0)

    def allow(self, address: int, size: int) -> None:
        self._call("cuMemSetAccess", address, size, [self._access], 1)

    def release(self, handle: Any) -> None:
        self._call("cuMemRelease", handle)

    def unmap(self, address: int, size: int) -> None:
        self._call("cuMemUnmap", address, size)

    def _call(self, name: str, *arguments: Any) -> Any:
        """What a call returns beside its error: nothing, a value, or a tuple."""
        error, *values = getattr(self._driver, name)(*arguments)
        codes = self._driver.CUresult
        if error == codes.CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(None, None, name)
        if error != codes.CUDA_SUCCESS:
            raise RuntimeError(f"{name} failed: {error.name}")
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)
