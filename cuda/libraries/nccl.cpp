// The functions of libnccl for cuda/nccl/.
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/nccl/api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#define TG_SAME(ours, value, theirs) static_assert(static_cast<int>(nccl##theirs) == value);
namespace tapegrad::cuda::nccl_api {
TG_NCCL_RESULTS(TG_SAME)
TG_NCCL_OPERATORS(TG_SAME)
TG_NCCL_DATA_TYPES(TG_SAME)
#undef TG_SAME
static_assert(Config::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
static_assert(sizeof(Config) == sizeof(ncclConfig_t));
#define TG_SAME_PLACE(ours, theirs) static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs))
TG_SAME_PLACE(size, size);
TG_SAME_PLACE(magic, magic);
TG_SAME_PLACE(version, version);
TG_SAME_PLACE(blocking, blocking);
TG_SAME_PLACE(cga_cluster_size, cgaClusterSize);
TG_SAME_PLACE(min_ctas, minCTAs);
TG_SAME_PLACE(max_ctas, maxCTAs);
TG_SAME_PLACE(net_name, netName);
TG_SAME_PLACE(split_share, splitShare);
TG_SAME_PLACE(traffic_class, trafficClass);
TG_SAME_PLACE(comm_name, commName);
TG_SAME_PLACE(collnet_enable, collnetEnable);
TG_SAME_PLACE(cta_policy, CTAPolicy);
TG_SAME_PLACE(shrink_share, shrinkShare);
TG_SAME_PLACE(nvls_ctas, nvlsCTAs);
TG_SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
TG_SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
#endif
}  // namespace tapegrad::cuda::nccl_api
#endif

#include <mutex>

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

namespace {

struct Found {
  nccl_api::Functions functions{};
  std::string why_not;
};

void find_all(Found& found) {
  Library& library = nccl();
  nccl_api::Functions& f = found.functions;
  found.why_not = library.why_not();
  if (!found.why_not.empty()) return;
  try {
    library.find(f.get_version, "ncclGetVersion");
    int version = 0;
    const nccl_api::Result result = f.get_version(&version);
    if (result != nccl_api::kSuccess || version < nccl_api::kOldest || version >= 30000) {
      found.why_not = fmt::format("NCCL has the version {}.{}.{}; from 2.28 to before 3 are known", version / 10000,
                                  version / 100 % 100, version % 100);
      return;
    }
    library.find(f.get_unique_id, "ncclGetUniqueId");
    library.find(f.init, "ncclCommInitRankConfig");
    library.find(f.async_error, "ncclCommGetAsyncError");
    library.find(f.abort, "ncclCommAbort");
    library.find(f.error_string, "ncclGetErrorString");
    library.find(f.last_error, "ncclGetLastError");
    library.find(f.group_start, "ncclGroupStart");
    library.find(f.group_end, "ncclGroupEnd");
    library.find(f.all_reduce, "ncclAllReduce");
    library.find(f.broadcast, "ncclBroadcast");
    library.find(f.reduce, "ncclReduce");
    library.find(f.all_gather, "ncclAllGather");
    library.find(f.reduce_scatter, "ncclReduceScatter");
    library.find(f.send, "ncclSend");
    library.find(f.recv, "ncclRecv");
  } catch (const Error& e) {
    found.why_not = e.message();
  }
}

const nccl_api::Functions* find(std::string& why_not) {
  static std::once_flag once;
  static auto& found = *new Found;
  std::call_once(once, [] { find_all(found); });
  why_not = found.why_not;
  return why_not.empty() ? &found.functions : nullptr;
}

}  // namespace

TG_API void register_nccl() { nccl_api::use_nccl(&find); }

}  // namespace tapegrad::cuda
