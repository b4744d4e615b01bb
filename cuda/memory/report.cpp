#include "tapegrad/cuda/memory/report.h"

#include <set>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

void add(std::string& out, const std::string& name, uint64_t value) {
  out += fmt::format("{}\"{}\": {}", out.size() > 1 ? ", " : "", name, value);
}

uint64_t stream_number(StreamHandle s) { return reinterpret_cast<uint64_t>(s); }

}  // namespace

std::string stats_json(const AllocatorStats& s) {
  std::string out = "{";
  const std::pair<const char*, const std::array<Counter, 3>*> rows[] = {
      {"active", &s.active},
      {"active_bytes", &s.active_bytes},
      {"allocated_bytes", &s.allocated_bytes},
      {"allocation", &s.allocation},
      {"inactive_split", &s.inactive_split},
      {"inactive_split_bytes", &s.inactive_split_bytes},
      {"requested_bytes", &s.requested_bytes},
      {"reserved_bytes", &s.reserved_bytes},
      {"segment", &s.segment},
  };
  for (const auto& [name, counters] : rows) {
    static constexpr const char* kPools[] = {"all", "small_pool", "large_pool"};
    for (int pool : {0, 2, 1}) {
      const Counter& c = (*counters)[static_cast<size_t>(pool)];
      const std::string prefix = std::string(name) + "." + kPools[pool] + ".";
      add(out, prefix + "allocated", c.allocated);
      add(out, prefix + "current", c.current);
      add(out, prefix + "freed", c.freed);
      add(out, prefix + "peak", c.peak);
    }
  }
  // There is no size from which blocks are not split, so none is oversize.
  for (const char* name : {"oversize_allocations", "oversize_segments"})
    for (const char* what : {"allocated", "current", "freed", "peak"}) add(out, std::string(name) + "." + what, 0);
  out += ", \"max_split_size\": -1";
  add(out, "num_alloc_retries", s.retries);
  add(out, "num_device_alloc", s.device_allocs);
  add(out, "num_device_free", s.device_frees);
  add(out, "num_ooms", s.ooms);
  add(out, "num_sync_all_streams", s.syncs);
  return out + "}";
}

std::string host_stats_json(const PinnedStats& s) {
  std::string out = "{";
  auto row = [&](const std::string& name, uint64_t current, uint64_t peak, uint64_t allocated, uint64_t freed) {
    add(out, name + ".allocated", allocated);
    add(out, name + ".current", current);
    add(out, name + ".freed", freed);
    add(out, name + ".peak", peak);
  };
  row("active_bytes", s.allocated, s.max_allocated, s.allocated_total, s.allocated_total - s.allocated);
  row("active_requests", s.num_allocs - s.num_frees, s.max_blocks, s.num_allocs, s.num_frees);
  row("allocated_bytes", s.reserved, s.max_reserved, s.reserved_total, s.reserved_total - s.reserved);
  row("allocations", s.num_host_alloc - s.num_host_free, s.max_host_blocks, s.num_host_alloc, s.num_host_free);
  add(out, "num_host_alloc", s.num_host_alloc);
  add(out, "num_host_free", s.num_host_free);
  return out + "}";
}

std::string snapshot_json(int device, const DeviceAllocator& allocator) {
  static constexpr const char* kStates[] = {"active_allocated", "active_pending_free", "inactive", "unmapped"};
  static constexpr const char* kEvents[] = {"alloc",         "free_requested", "free_completed",
                                            "segment_alloc", "segment_free",   "oom"};
  std::set<uint32_t> sites;
  std::string out = "{\"segments\": [";
  bool first = true;
  for (const SegmentRecord& s : allocator.segments()) {
    uint64_t allocated = 0, active = 0, requested = 0;
    std::string blocks;
    for (const BlockRecord& b : s.blocks) {
      if (b.state == BlockRecord::Allocated) allocated += b.size;
      if (b.state == BlockRecord::Allocated || b.state == BlockRecord::Pending) active += b.size;
      requested += b.requested;
      if (b.site != 0) sites.insert(b.site);
      blocks +=
          fmt::format("{}{{\"address\": {}, \"size\": {}, \"requested_size\": {}, \"state\": \"{}\", \"site\": {}}}",
                      blocks.empty() ? "" : ", ", b.address, b.size, b.requested, kStates[b.state], b.site);
    }
    out += fmt::format(
        "{}{{\"device\": {}, \"address\": {}, \"total_size\": {}, \"mapped_size\": {}, \"allocated_size\": {}, "
        "\"active_size\": {}, \"requested_size\": {}, \"stream\": {}, \"segment_type\": \"{}\", \"segment_pool_id\": "
        "[0, {}], "
        "\"is_expandable\": {}, \"blocks\": [{}]}}",
        first ? "" : ", ", device, s.address, s.size, s.mapped, allocated, active, requested, stream_number(s.stream),
        s.small ? "small" : "large", s.pool, s.expandable, blocks);
    first = false;
  }
  out += "], \"device_traces\": [";
  first = true;
  for (const MemoryEvent& e : allocator.history()) {
    if (e.site != 0) sites.insert(e.site);
    out += fmt::format(
        "{}{{\"action\": \"{}\", \"addr\": {}, \"size\": {}, \"stream\": {}, \"time_us\": {}, \"site\": {}}}",
        first ? "" : ", ", kEvents[e.kind], e.address, e.size, stream_number(e.stream), e.time_us, e.site);
    first = false;
  }
  out += "], \"sites\": {";
  first = true;
  for (uint32_t site : sites) {
    auto* describe = host_hooks().describe_site;
    out += fmt::format("{}\"{}\": {}", first ? "" : ", ", site, quoted(describe ? describe(site) : ""));
    first = false;
  }
  return out + "}}";
}

std::string properties_json(const DeviceProperties& p) {
  std::string uuid;
  for (int i = 0; i < 16; ++i)
    uuid += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", static_cast<int>(p.uuid[i]));
  return fmt::format(
      "{{\"name\": {}, \"major\": {}, \"minor\": {}, \"total_memory\": {}, \"multi_processor_count\": {}, \"uuid\": "
      "\"{}\", "
      "\"is_integrated\": {}, \"is_multi_gpu_board\": {}, \"max_threads_per_multi_processor\": {}, "
      "\"max_threads_per_block\": {}, \"warp_size\": {}, \"regs_per_multiprocessor\": {}, \"shared_memory_per_block\": "
      "{}, "
      "\"shared_memory_per_block_optin\": {}, \"shared_memory_per_multiprocessor\": {}, \"L2_cache_size\": {}, "
      "\"clock_rate\": {}, \"memory_clock_rate\": {}, \"memory_bus_width\": {}, \"pci_bus_id\": {}, \"pci_device_id\": "
      "{}, "
      "\"pci_domain_id\": {}}}",
      quoted(p.name), p.major, p.minor, p.total_memory, p.multiprocessors, uuid, p.integrated, p.multi_gpu_board,
      p.max_threads_per_multiprocessor, p.max_threads_per_block, p.warp_size, p.registers_per_multiprocessor,
      p.shared_memory_per_block, p.shared_memory_per_block_optin, p.shared_memory_per_multiprocessor, p.l2_cache_size,
      p.clock_rate_khz, p.memory_clock_rate_khz, p.memory_bus_width, p.pci_bus_id, p.pci_device_id, p.pci_domain_id);
}

std::string versions_json() {
  return fmt::format("{{\"driver\": {}, \"runtime\": {}}}", driver().driver_version(), driver().runtime_version());
}

}  // namespace tapegrad::cuda
