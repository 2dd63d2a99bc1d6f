// The closures of one session: bounded by count and bytes, the least recently used go first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "closure.h"

namespace ort_mlx {

// A specialization key: the guarded values of a Run, as words. Equal keys may share a closure.
using KeyView = std::span<const uint64_t>;
using Key = std::vector<uint64_t>;

struct KeyHash {
  using is_transparent = void;
  size_t operator()(KeyView key) const;
  size_t operator()(const Key& key) const { return (*this)(KeyView(key)); }
};

struct KeyEqual {
  using is_transparent = void;
  bool operator()(KeyView a, KeyView b) const;
};

// Keys that change by the same words from step to step. One closure serves the steps up to `last`.
struct Progression {
  Key base;
  Key change;  // what one step adds to each word, modulo 2^64
  int64_t last;

  // The step of a key, or -1 when it is not among them.
  int64_t step_of(KeyView key) const;
};

// What a Run is to a decoder; in the order of ROUTES in settings.py.
enum class Route { kGeneral, kPrefill, kDecode };
inline constexpr size_t kRoutes = 3;

class ClosureCache {
 public:
  struct Found {
    std::shared_ptr<const Closure> closure;  // null for a miss
    int64_t step = 0;
    Route route = Route::kGeneral;
  };
  struct Counts {
    uint64_t hits = 0;
    uint64_t misses = 0;  // keys that were not there, whether a trace followed or not
    uint64_t traces = 0;
    uint64_t evictions = 0;
    uint64_t failures = 0;  // traces and replays that failed, each followed by an eager Run
    std::array<uint64_t, kRoutes> runs{};  // that a closure served whole, by route
    uint64_t eager_runs = 0;               // Runs, or parts of one, that went step by step
  };

  ClosureCache(size_t max_closures, size_t max_bytes)
      : max_closures_(max_closures), max_bytes_(max_bytes) {}

  // Counts a hit or a miss. No allocation.
  Found find(KeyView key);
  void insert(KeyView key, std::shared_ptr<const Closure> closure, Route route = Route::kGeneral);
  void insert(Progression progression, std::shared_ptr<const Closure> closure, Route route);
  void erase(KeyView key);
  void clear();

  void count_failure();
  void count_run(Route route);
  void count_eager_run();
  Counts counts() const;
  size_t size() const;
  size_t nbytes() const;

 private:
  struct Entry {
    Key key;  // of a progression: its base
    std::shared_ptr<const Closure> closure;
    std::optional<Progression> progression;
    Route route;
  };
  using Position = std::list<Entry>::iterator;

  std::optional<std::pair<Position, int64_t>> locate(KeyView key);
  void add(Entry entry);
  void drop(Position entry);

  const size_t max_closures_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_;  // most recently used first
  std::unordered_map<Key, Position, KeyHash, KeyEqual> index_;
  std::vector<Position> progressions_;
  size_t nbytes_ = 0;
  Counts counts_;
};

}  // namespace ort_mlx
