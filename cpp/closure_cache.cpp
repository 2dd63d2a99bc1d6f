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

int64_t Progression::step_of(KeyView key) const {
  if (key.size() != base.size()) return -1;
  size_t i = 0;
  while (i < key.size() && change[i] == 0) ++i;
  if (i == key.size()) return -1;
  const auto distance = static_cast<int64_t>(key[i] - base[i]);
  const auto stride = static_cast<int64_t>(change[i]);
  if (distance % stride != 0) return -1;
  const int64_t step = distance / stride;
  if (step < 0 || step > last) return -1;
  for (size_t k = 0; k < key.size(); ++k) {
    if (key[k] != base[k] + change[k] * static_cast<uint64_t>(step)) return -1;
  }
  return step;
}

std::optional<std::pair<ClosureCache::Position, int64_t>> ClosureCache::locate(KeyView key) {
  if (auto found = index_.find(key); found != index_.end()) return std::pair(found->second, 0);
  for (Position position : progressions_) {
    const int64_t step = position->progression->step_of(key);
    if (step >= 0) return std::pair(position, step);
  }
  return std::nullopt;
}

ClosureCache::Found ClosureCache::find(KeyView key) {
  std::lock_guard lock(mutex_);
  const auto found = locate(key);
  if (!found) {
    ++counts_.misses;
    return {};
  }
  ++counts_.hits;
  recent_.splice(recent_.begin(), recent_, found->first);
  return {found->first->closure, found->second, found->first->route};
}

void ClosureCache::insert(KeyView key, std::shared_ptr<const Closure> closure, Route route) {
  add({Key(key.begin(), key.end()), std::move(closure), std::nullopt, route});
}

void ClosureCache::insert(Progression progression, std::shared_ptr<const Closure> closure,
                          Route route) {
  Key base = progression.base;
  add({std::move(base), std::move(closure), std::move(progression), route});
}

void ClosureCache::add(Entry entry) {
  std::lock_guard lock(mutex_);
  ++counts_.traces;
  if (auto found = index_.find(KeyView(entry.key)); found != index_.end()) drop(found->second);
  nbytes_ += entry.closure->nbytes();
  recent_.push_front(std::move(entry));
  index_.emplace(recent_.front().key, recent_.begin());
  if (recent_.front().progression) progressions_.push_back(recent_.begin());
  while (recent_.size() > 1 && (recent_.size() > max_closures_ || nbytes_ > max_bytes_)) {
    ++counts_.evictions;
    drop(std::prev(recent_.end()));
  }
}

void ClosureCache::erase(KeyView key) {
  std::lock_guard lock(mutex_);
  if (const auto found = locate(key)) drop(found->first);
}

void ClosureCache::clear() {
  std::lock_guard lock(mutex_);
  index_.clear();
  progressions_.clear();
  recent_.clear();
  nbytes_ = 0;
}

void ClosureCache::drop(Position entry) {
  nbytes_ -= entry->closure->nbytes();
  index_.erase(entry->key);
  std::erase(progressions_, entry);
  recent_.erase(entry);
}

void ClosureCache::count_failure() {
  std::lock_guard lock(mutex_);
  ++counts_.failures;
}

void ClosureCache::count_run(Route route) {
  std::lock_guard lock(mutex_);
  ++counts_.runs[static_cast<size_t>(route)];
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
