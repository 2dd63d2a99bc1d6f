#include "closure_cache.h"

#include <algorithm>

namespace ort_mlx {

size_t KeyHash::operator()(KeyView key) const {
  uint64_t hash = 0x9E3779B97F4A7C15ULL ^ key.size();
  for (uint64_t word : key) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 32;
  }
  return hash;
}

bool KeyEqual::operator()(KeyView a, KeyView b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::shared_ptr<const Closure> ClosureCache::find(KeyView key) {
  std::lock_guard lock(mutex_);
  auto found = index_.find(key);
  if (found == index_.end()) {
    ++counts_.misses;
    return nullptr;
  }
  ++counts_.hits;
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->closure;
}

void ClosureCache::insert(KeyView key, std::shared_ptr<const Closure> closure) {
  std::lock_guard lock(mutex_);
  ++counts_.traces;
  if (auto found = index_.find(key); found != index_.end()) drop(found->second);
  nbytes_ += closure->nbytes();
  recent_.push_front(Entry{Key(key.begin(), key.end()), std::move(closure)});
  index_.emplace(recent_.front().key, recent_.begin());
  while (recent_.size() > 1 && (recent_.size() > max_closures_ || nbytes_ > max_bytes_)) {
    ++counts_.evictions;
    drop(std::prev(recent_.end()));
  }
}

void ClosureCache::erase(KeyView key) {
  std::lock_guard lock(mutex_);
  if (auto found = index_.find(key); found != index_.end()) drop(found->second);
}

void ClosureCache::clear() {
  std::lock_guard lock(mutex_);
  index_.clear();
  recent_.clear();
  nbytes_ = 0;
}

void ClosureCache::drop(std::list<Entry>::iterator entry) {
  nbytes_ -= entry->closure->nbytes();
  index_.erase(entry->key);
  recent_.erase(entry);
}

void ClosureCache::count_failure() {
  std::lock_guard lock(mutex_);
  ++counts_.failures;
}

void ClosureCache::count_eager_run() {
  std::lock_guard lock(mutex_);
  ++counts_.eager_runs;
}

ClosureCache::Counts ClosureCache::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

size_t ClosureCache::size() const {
  std::lock_guard lock(mutex_);
  return recent_.size();
}

size_t ClosureCache::nbytes() const {
  std::lock_guard lock(mutex_);
  return nbytes_;
}

}  // namespace ort_mlx
