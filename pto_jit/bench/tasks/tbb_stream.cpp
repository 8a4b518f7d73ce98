// SPDX-License-Identifier: MIT
// The same graph in oneTBB's flow graph: its edges are given, since it finds none itself.
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

// times[0]: building, times[1]: the first run, times[2]: the second, in milliseconds
extern "C" int once(int threads, int64_t tasks, int64_t edges, const int64_t *from, const int64_t *to, double *times) {
    using clock = std::chrono::steady_clock;
    using node = oneapi::tbb::flow::continue_node<oneapi::tbb::flow::continue_msg>;
    auto ms = [](clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism,
                                      static_cast<size_t>(threads));
    oneapi::tbb::task_arena arena(threads);
    arena.execute([&] {
        auto t0 = clock::now();
        oneapi::tbb::flow::graph graph;
        std::deque<node> nodes;
        std::vector<char> waits(static_cast<size_t>(tasks), 0);
        for (int64_t i = 0; i < tasks; i++) {
            nodes.emplace_back(graph, [](const oneapi::tbb::flow::continue_msg &m) { return m; });
        }
        for (int64_t i = 0; i < edges; i++) {
            oneapi::tbb::flow::make_edge(nodes[static_cast<size_t>(from[i])], nodes[static_cast<size_t>(to[i])]);
            waits[static_cast<size_t>(to[i])] = 1;
        }
        auto run = [&] {
            for (size_t i = 0; i < nodes.size(); i++) {
                if (!waits[i]) {
                    nodes[i].try_put(oneapi::tbb::flow::continue_msg());
                }
            }
            graph.wait_for_all();
        };
        auto t1 = clock::now();
        run();
        auto t2 = clock::now();
        run();
        auto t3 = clock::now();
        times[0] = ms(t1 - t0);
        times[1] = ms(t2 - t1);
        times[2] = ms(t3 - t2);
    });
    return 0;
}
