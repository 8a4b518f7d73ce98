// SPDX-License-Identifier: MIT
// What Python calls: modules, memory and launches. A function that fails gives what is wrong, or nothing.
#include <algorithm>
#include <numeric>

#include "machine.h"

namespace ptx {
namespace {

std::string failure;

void begin(Warp& warp) {
  const Block& block = *warp.block;
  warp.meetings = 1;
  warp.barrier = -1;
  for (int lane = 0; lane < LANES; ++lane) {
    warp.at[lane] = 0;
    warp.lane[lane] = warp.thread(lane) < block.threads() ? Lane::runs : Lane::ended;
    warp.copies[lane].clear();
    warp.groups[lane].clear();
  }
  for (const auto& [slot, value] : block.kernel.constants)
    for (int lane = 0; lane < LANES; ++lane) warp.value(slot, lane) = value;
  for (const Origin& origin : block.kernel.origins)
    for (int lane = 0; lane < LANES; ++lane) {
      const uint32_t thread = uint32_t(warp.thread(lane)), x = block.extent[0], y = block.extent[1];
      const uint32_t place[3] = {thread % x, thread / x % y, thread / x / y};
      uint64_t& value = warp.value(origin.slot, lane);
      switch (origin.what) {
        case Special::tid: value = place[origin.axis]; break;
        case Special::ntid: value = block.extent[origin.axis]; break;
        case Special::ctaid: value = block.place[origin.axis]; break;
        case Special::nctaid: value = block.grid[origin.axis]; break;
        case Special::lane: value = uint32_t(lane); break;
        case Special::warp: value = uint32_t(warp.number); break;
        case Special::dynamic_shared: value = WINDOW + block.dynamic_at; break;
      }
    }
}

void launch(const Kernel& kernel, const uint32_t* sizes, size_t dynamic, Order order, void** arguments) {
  std::vector<std::byte> parameters(kernel.parameter_bytes);
  for (size_t k = 0; k < kernel.parameters.size(); ++k)
    std::memcpy(parameters.data() + kernel.parameters[k].first, arguments[k], kernel.parameters[k].second);
  const size_t dynamic_at = (kernel.shared_bytes + 1023) / 1024 * 1024;
  Block block{kernel, order, {sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, {}, 0, parameters.data(),
              dynamic_at, {}, {}, {}, {}, 1, std::mt19937(order.seed)};
  if (block.threads() > kernel.most_threads) throw Fault{"more threads than the kernel was compiled for"};
  block.warps.resize(size_t(block.threads() + LANES - 1) / LANES);
  for (Warp& warp : block.warps) {
    warp.block = &block;
    warp.number = int(&warp - block.warps.data());
    // What registers hold at first is not said; a pattern shows where one is read.
    warp.registers.assign(size_t(kernel.slots) * LANES, 0xA5A5A5A5A5A5A5A5);
    warp.local.assign((kernel.local_bytes + 15) / 16 * 16 * LANES, std::byte(0xA5));
  }
  std::vector<uint32_t> numbers(size_t(sizes[0]) * sizes[1] * sizes[2]);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order.seed == 1) std::reverse(numbers.begin(), numbers.end());
  if (order.seed > 1) std::shuffle(numbers.begin(), numbers.end(), block.random);
  begin_kernel();
  for (uint32_t number : numbers) {
    block.number = number;
    block.place[0] = number % sizes[0];
    block.place[1] = number / sizes[0] % sizes[1];
    block.place[2] = number / sizes[0] / sizes[1];
    block.meetings = 1;
    block.shared.assign(dynamic_at + dynamic, std::byte(0xA5));
    block.touched.assign(block.shared.size(), Touched());
    block.warpgroups.assign(block.warps.size() / 4 + 1, Warpgroup());
    for (Warp& warp : block.warps) begin(warp);
    run(block);
  }
}

}  // namespace
}  // namespace ptx

extern "C" {

const char* ptx_failure() { return ptx::failure.c_str(); }

// A module of kernels; null where it cannot be simulated.
void* ptx_module(const char* text) {
  try {
    return new ptx::Module(ptx::parsed(text));
  } catch (const ptx::Fault& fault) {
    ptx::failure = fault.what;
    return nullptr;
  }
}

// A kernel of a module; null where there is none of that name.
const void* ptx_kernel(const void* module, const char* name) {
  const auto& kernels = static_cast<const ptx::Module*>(module)->kernels;
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

size_t ptx_shared_bytes(const void* kernel) { return static_cast<const ptx::Kernel*>(kernel)->shared_bytes; }

uint64_t ptx_allocate(size_t bytes) { return ptx::allocated(bytes); }
void ptx_free(uint64_t address) { ptx::freed(address); }
void ptx_know(uint64_t address, size_t bytes) { ptx::known(address, bytes); }
void ptx_forget(uint64_t address) { ptx::forgotten(address); }

// What has been accessed since the last call.
const char* ptx_traffic() { return ptx::traffic().c_str(); }

// Runs a kernel. sizes: of the grid and of a block; arguments: pointers to values, as for the driver. False: ptx_failure.
bool ptx_launch(const void* kernel, const uint32_t* sizes, size_t shared, uint32_t seed, bool late, void** arguments) {
  try {
    ptx::launch(*static_cast<const ptx::Kernel*>(kernel), sizes, shared, {seed, late}, arguments);
    return true;
  } catch (const ptx::Fault& fault) {
    ptx::failure = fault.what;
    return false;
  }
}
}
