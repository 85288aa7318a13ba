// The workloads of sim_workloads.py on SimGrid's S4U, for bench/sim.py: pure max-min sharing between hosts, without mailboxes.
// usage: sim_flows WORKLOAD ENDS|- [--cfg=…]     prints one JSON object
#include <simgrid/s4u.hpp>

#include <sys/resource.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace s4u = simgrid::s4u;

struct Transfer {
    unsigned agent;
    double start_s;  // open: a time; closed: after the agent's last one
    unsigned from, to;
    double bytes;
};

static double cpu_s()
{
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static std::vector<s4u::LinkInRoute> read_side(std::istream& in, const std::vector<s4u::Link*>& links)
{
    size_t count = 0, number = 0;
    in >> count;
    std::vector<s4u::LinkInRoute> side;
    while (count-- > 0 && in >> number) side.emplace_back(links.at(number));
    return side;
}

static std::vector<s4u::Host*> read_hosts(std::istream& in, s4u::NetZone* zone)
{
    size_t count = 0;
    double capacity = 0, latency_s = 0;
    in >> count;
    std::vector<s4u::Link*> links;
    for (size_t number = 0; number < count && in >> capacity >> latency_s; ++number) {
        auto* link = zone->create_link("link" + std::to_string(number), capacity);
        link->set_latency(latency_s);
        links.push_back(link->seal());
    }
    in >> count;
    std::vector<s4u::Host*> hosts;
    for (size_t number = 0; number < count; ++number) {
        auto* host = zone->create_host("host" + std::to_string(number), 1e9);
        host->seal();
        auto out = read_side(in, links), into = read_side(in, links);
        zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, out, false);
        zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, into, false);
        hosts.push_back(host);
    }
    zone->seal();
    return hosts;
}

// One actor starts all flows without waiting for them. Ended flows are dropped from time to time, because memory would otherwise grow with
// the total number of flows. This needs one more call per transfer.
struct Injector {
    static constexpr size_t SWEEP = 1000;
    const std::vector<Transfer>& transfers;
    const std::vector<s4u::Host*>& hosts;
    std::vector<double>& ends;
    std::vector<std::pair<size_t, s4u::CommPtr>> under_way{};

    void run()
    {
        for (size_t number = 0; number < transfers.size(); ++number) {
            const auto& transfer = transfers[number];
            s4u::this_actor::sleep_until(transfer.start_s);
            auto comm = s4u::Comm::sendto_init();
            comm->set_payload_size(static_cast<uint64_t>(transfer.bytes));
            // The second call of the two starts it.
            comm->set_source(hosts.at(transfer.from))->set_destination(hosts.at(transfer.to));
            under_way.emplace_back(number, comm);
            if (number % SWEEP == SWEEP - 1) sweep();
        }
        for (auto& [number, comm] : under_way) {
            comm->wait();
            ends[number] = comm->get_finish_time();
        }
        under_way.clear();
    }

    void sweep()
    {
        size_t kept = 0;
        for (auto& entry : under_way) {
            if (entry.second->test())
                ends[entry.first] = entry.second->get_finish_time();
            else
                std::swap(under_way[kept++], entry);
        }
        under_way.resize(kept);
    }
};

int main(int argc, char** argv)
{
    s4u::Engine engine(&argc, argv);
    if (argc < 3) return 2;
    std::ifstream in(argv[1]);
    auto* zone = s4u::create_star_zone("world");
    const auto hosts = read_hosts(in, zone);
    std::string kind;
    size_t agents = 0, count = 0;
    if (!(in >> kind >> agents >> count) || (kind != "open" && kind != "closed")) return 2;
    std::vector<Transfer> transfers(count);
    std::vector<std::vector<size_t>> of_agent(kind == "closed" ? agents : 0);
    for (size_t number = 0; number < count; ++number) {
        auto& transfer = transfers[number];
        if (kind == "closed") in >> transfer.agent;
        in >> transfer.start_s >> transfer.from >> transfer.to >> transfer.bytes;
        if (kind == "closed") of_agent.at(transfer.agent).push_back(number);
    }
    if (!in) return 2;
    std::vector<double> ends(count, -1.0);
    auto injector = std::make_shared<Injector>(Injector{transfers, hosts, ends});
    if (kind == "open") s4u::Actor::create("injector", hosts[0], [injector] { injector->run(); });
    for (const auto& own : of_agent)
        s4u::Actor::create("agent", hosts[0], [&own, &transfers, &hosts, &ends] {
            for (size_t number : own) {
                const auto& transfer = transfers[number];
                if (transfer.start_s > 0) s4u::this_actor::sleep_for(transfer.start_s);
                s4u::Comm::sendto(hosts.at(transfer.from), hosts.at(transfer.to), static_cast<uint64_t>(transfer.bytes));
                ends[number] = s4u::Engine::get_clock();
            }
        });
    const auto begin = std::chrono::steady_clock::now();
    const double begin_cpu_s = cpu_s();
    engine.run();
    const double used_s = cpu_s() - begin_cpu_s;
    const std::chrono::duration<double> run_s = std::chrono::steady_clock::now() - begin;
    std::cout << "{\"run_s\": " << run_s.count() << ", \"cpu_s\": " << used_s << ", \"end_s\": " << std::setprecision(17)
              << s4u::Engine::get_clock() << "}" << std::endl;
    if (std::string(argv[2]) != "-") {
        std::ofstream out(argv[2]);
        out << std::setprecision(17);
        for (double end_s : ends) out << end_s << "\n";
    }
    // Exit without removing the actors, which takes longer than the run and is not measured.
    std::fflush(stdout);
    _exit(0);
}
