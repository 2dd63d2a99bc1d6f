// The closures of one session: bounded by count and bytes, the least recently used go first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
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

class ClosureCache {
 public:
  struct Counts {
    uint64_t hits = 0;
    uint64_t misses = 0;  // keys that were not there, whether a trace followed or not
    uint64_t traces = 0;
    uint64_t evictions = 0;
    uint64_t failures = 0;    // traces and replays that failed, each followed by an eager Run
    uint64_t eager_runs = 0;  // Runs, or parts of one, that went step by step
  };

  ClosureCache(size_t max_closures, size_t max_bytes)
      : max_closures_(max_closures), max_bytes_(max_bytes) {}

  // Counts a hit or a miss. No allocation.
  std::shared_ptr<const Closure> find(KeyView key);
  void insert(KeyView key, std::shared_ptr<const Closure> closure);
  void erase(KeyView key);
  void clear();

  void count_failure();
  void count_eager_run();
  Counts counts() const;
  size_t size() const;
  size_t nbytes() const;

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Closure> closure;
  };

  void drop(std::list<Entry>::iterator entry);

  const size_t max_closures_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash, KeyEqual> index_;
  size_t nbytes_ = 0;
  Counts counts_;
};

}  // namespace ort_mlx
