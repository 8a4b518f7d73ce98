// SPDX-License-Identifier: MIT
// The same graph in Taskflow: its edges are given, since it finds none itself.
#include <taskflow/taskflow.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

static std::unique_ptr<tf::Executor> executor;
static int executor_threads = 0;

// times[0]: building, times[1]: the first run, times[2]: the second, in milliseconds
extern "C" int once(int threads, int64_t tasks, int64_t edges, const int64_t *from, const int64_t *to, double *times) {
    using clock = std::chrono::steady_clock;
    auto ms = [](clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    if (executor_threads != threads) {
        executor = std::make_unique<tf::Executor>(static_cast<size_t>(threads));
        executor_threads = threads;
    }
    auto t0 = clock::now();
    tf::Taskflow flow;
    std::vector<tf::Task> nodes;
    nodes.reserve(static_cast<size_t>(tasks));
    for (int64_t i = 0; i < tasks; i++) {
        nodes.push_back(flow.emplace([] {}));
    }
    for (int64_t i = 0; i < edges; i++) {
        nodes[static_cast<size_t>(from[i])].precede(nodes[static_cast<size_t>(to[i])]);
    }
    auto t1 = clock::now();
    executor->run(flow).wait();
    auto t2 = clock::now();
    executor->run(flow).wait();
    auto t3 = clock::now();
    times[0] = ms(t1 - t0);
    times[1] = ms(t2 - t1);
    times[2] = ms(t3 - t2);
    return 0;
}
