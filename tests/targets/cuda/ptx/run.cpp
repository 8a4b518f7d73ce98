// SPDX-License-Identifier: MIT
// Runs the threads of a block, which go on independently of each other, those of one warp too, until they meet.
#include <algorithm>

#include "machine.h"

namespace ptx {

void fault(const Instruction& i, const std::string& what) { throw Fault{what + ": " + i.text}; }

namespace {

constexpr uint64_t MOST_STEPS = uint64_t(1) << 32;  // of a block that ends at all

Lanes lanes_that(const Warp& warp, Lane state, int at = -1) {
  Lanes out = 0;
  for (int lane = 0; lane < LANES; ++lane)
    if (warp.lane[lane] == state && (at < 0 || warp.at[lane] == at)) out |= Lanes(1) << lane;
  return out;
}

// The lanes that go on next, which are at the same instruction.
Lanes chosen(Warp& warp) {
  const Lanes running = lanes_that(warp, Lane::runs);
  if (running == 0) return 0;
  int lane = __builtin_ctz(running);
  if (warp.block->order.seed > 1)
    for (lane = int(warp.block->random() % LANES); !(running >> lane & 1); lane = (lane + 1) % LANES) {}
  else
    for_each(running, [&](int other) { lane = warp.at[other] < warp.at[lane] ? other : lane; });
  return lanes_that(warp, Lane::runs, warp.at[lane]);
}

void go_on(Warp& warp, Lanes lanes) {
  for_each(lanes, [&](int lane) {
    warp.lane[lane] = Lane::runs;
    ++warp.at[lane];
  });
}

// All warps of a warpgroup execute an instruction together: the last one that comes to it does, for all.
void meet_as_warpgroup(Warp& warp, const Instruction& i) {
  Block& block = *warp.block;
  const int first = warp.number / 4 * 4, at = warp.at[0];
  if (first + 4 > int(block.warps.size())) fault(i, "a warpgroup of less than four warps");
  for (int w = first; w < first + 4; ++w)
    if (lanes_that(block.warps[w], Lane::meets, at) != ALL_LANES) return;
  i.run(warp, i, ALL_LANES);
  for (int w = first; w < first + 4; ++w) go_on(block.warps[w], ALL_LANES);
}

// Lanes come to an instruction that waits for others; the last ones execute it.
void meet(Warp& warp, const Instruction& i, Lanes lanes) {
  const int at = warp.at[__builtin_ctz(lanes)];
  for_each(lanes, [&](int lane) { warp.lane[lane] = Lane::meets; });
  const int left = warp.block->threads() - warp.number * LANES;
  const Lanes there_are = left >= LANES ? ALL_LANES : (Lanes(1) << left) - 1, ended = lanes_that(warp, Lane::ended);
  while (lanes != 0) {
    Lanes wanted = i.meeting == Meeting::block ? there_are & ~ended : ALL_LANES;
    Lanes here = lanes_that(warp, Lane::meets, at);
    if (i.meeting == Meeting::named) {
      const int slot = i.operands.back()[0], first = __builtin_ctz(lanes);
      wanted = Lanes(warp.value(slot, first));
      if (!(wanted >> first & 1)) fault(i, "a lane that its mask does not name");
      for_each(here, [&](int lane) { here &= ~(Lanes(Lanes(warp.value(slot, lane)) != wanted) << lane); });
      wanted &= there_are;
    }
    if (wanted & (ended | ~there_are)) fault(i, "waits for threads that have ended, or that there are not");
    lanes &= ~here;
    if (wanted & ~here) continue;
    if (i.meeting == Meeting::block) {
      if (!i.has("sync")) fault(i, "not simulated");
      warp.barrier = int(warp.operand(i, 0, __builtin_ctz(here)));
      warp.expected = i.operands.size() > 1 ? uint32_t(warp.operand(i, 1, __builtin_ctz(here))) : 0;
    } else if (i.meeting == Meeting::warpgroup) {
      meet_as_warpgroup(warp, i);
    } else {
      i.run(warp, i, here);
      go_on(warp, here);
    }
  }
}

void step(Warp& warp, Lanes lanes) {
  const int at = warp.at[__builtin_ctz(lanes)];
  const Instruction& i = warp.block->kernel.code[at];
  count_instruction();
  if (i.meeting != Meeting::nobody) {
    if (i.guard >= 0) fault(i, "lanes meet under a condition");
    return meet(warp, i, lanes);
  }
  Lanes on = lanes;
  if (i.guard >= 0)
    for_each(lanes, [&](int lane) { on &= ~(Lanes(bool(warp.value(i.guard, lane) & 1) == i.unless) << lane); });
  if (i.run != nullptr && on != 0) i.run(warp, i, on);
  for_each(lanes, [&](int lane) {
    const bool does = on >> lane & 1;
    if (i.exit && does)
      warp.lane[lane] = Lane::ended;
    else
      warp.at[lane] = i.branch && does ? i.target : at + 1;
  });
}

std::string where(const Block& block) {
  std::string out;
  for (const Warp& warp : block.warps)
    for (int lane = 0; lane < LANES; ++lane) {
      if (warp.lane[lane] == Lane::ended) continue;
      const std::string& text = block.kernel.code[warp.at[lane]].text;
      if (out.find(text) == std::string::npos) out += "\n  thread " + std::to_string(warp.thread(lane)) + " at " + text;
    }
  return out;
}

// Lets the warps go on that wait at a barrier to which all have come. False: there is none.
bool released(Block& block) {
  std::map<int, uint32_t> waiting, expected;
  uint32_t living = 0;
  for (const Warp& warp : block.warps) {
    living += uint32_t(LANES - __builtin_popcount(lanes_that(warp, Lane::ended)));
    if (warp.barrier < 0) continue;
    waiting[warp.barrier] += uint32_t(__builtin_popcount(lanes_that(warp, Lane::meets)));
    expected[warp.barrier] = warp.expected;
  }
  for (const auto& [barrier, count] : waiting) {
    if (count != (expected[barrier] == 0 ? living : expected[barrier])) continue;
    if (living < uint32_t(block.threads())) throw Fault{"threads meet when others have ended:" + where(block)};
    if (count == living) ++block.meetings;  // else only some have met, and are not told from the others
    for (Warp& warp : block.warps) {
      if (warp.barrier != barrier) continue;
      warp.barrier = -1;
      ++warp.meetings;
      go_on(warp, lanes_that(warp, Lane::meets));
    }
    return true;
  }
  return false;
}

}  // namespace

void run(Block& block) {
  std::vector<Warp*> running;
  for (uint64_t steps = 0;;) {
    running.clear();
    bool ended = true;
    for (Warp& warp : block.warps) {
      if (lanes_that(warp, Lane::runs) != 0) running.push_back(&warp);
      ended &= lanes_that(warp, Lane::ended) == ALL_LANES;
    }
    if (ended) break;
    if (running.empty()) {
      if (!released(block)) throw Fault{"threads wait for ever:" + where(block)};
      continue;
    }
    const uint32_t seed = block.order.seed;
    Warp& warp = *(seed == 0 ? running.front() : seed == 1 ? running.back() : running[block.random() % running.size()]);
    const uint64_t turn = seed > 1 ? 1 + block.random() % 64 : MOST_STEPS;
    for (uint64_t k = 0; k < turn; ++k) {
      const Lanes lanes = chosen(warp);
      if (lanes == 0) break;
      if (++steps > MOST_STEPS) throw Fault{"does not end"};
      step(warp, lanes);
    }
  }
  for (const Warpgroup& group : block.warpgroups)
    if (!group.products.empty() || !group.groups.empty()) throw Fault{"a product that nothing waits for"};
}

}  // namespace ptx
