// Jobs on several threads, results in the order of the jobs.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace smelt {

/// Workers fetch a job, run it and leave its result to be taken in its turn. At most `ahead` jobs
/// are fetched beyond what was taken, which bounds the memory.
template <typename Job, typename Result>
class OrderedWork {
 public:
  /// @param fetch  the next job, none at the end; called by one thread at a time
  /// @param run  called by several threads at once
  OrderedWork(std::function<std::optional<Job>()> fetch, std::function<Result(Job)> run,
              int threads, size_t ahead)
      : fetch_(std::move(fetch)), run_(std::move(run)), ahead_(ahead) {
    for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { work(); });
  }
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  /// The next result, none after the last. Rethrows what fetching or running this job threw.
  std::optional<Result> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(taken_) || (over_ && taken_ == fetched_); });
    const auto found = done_.find(taken_);
    if (found == done_.end()) return std::nullopt;
    Outcome outcome = std::move(found->second);
    done_.erase(found);
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    if (outcome.error) std::rethrow_exception(outcome.error);
    return std::move(outcome.result);
  }

 private:
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  void work() {
    while (true) {
      std::optional<Job> job;
      Outcome outcome;
      size_t number = 0;
      {
        const std::lock_guard turn(fetching_);
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return stop_ || over_ || fetched_ < taken_ + ahead_; });
          if (stop_ || over_) return;
        }
        try {
          job = fetch_();
        } catch (...) {
          outcome.error = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        over_ = !job.has_value();
        if (job || outcome.error) number = fetched_++;
      }
      if (job) {
        try {
          outcome.result = run_(std::move(*job));
        } catch (...) {
          outcome.error = std::current_exception();
        }
      }
      if (job || outcome.error) {
        const std::lock_guard lock(mutex_);
        done_.emplace(number, std::move(outcome));
      }
      changed_.notify_all();
    }
  }

  std::function<std::optional<Job>()> fetch_;
  std::function<Result(Job)> run_;
  size_t ahead_;
  std::mutex fetching_;  // held while a job is fetched; taken before mutex_
  std::mutex mutex_;     // guards what follows
  std::condition_variable changed_;
  std::map<size_t, Outcome> done_;
  size_t fetched_ = 0, taken_ = 0;
  bool over_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace smelt
