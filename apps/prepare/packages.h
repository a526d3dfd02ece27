// Fetches the packages of the corpus with the system's apt, pinned by version and by SHA-256.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/prepare/manifest.h"

namespace smelt {

/// Called with a line about what is being done.
using Report = std::function<void(const std::string& line)>;

/// Makes sure that folder `cache` holds every package with its right hash: good files are kept,
/// others are fetched by `apt-get download NAME=VERSION` (after one `apt-get update` if that
/// fails). Returns their paths in the order given.
/// @throws RunError with one line if they cannot be had.
std::vector<std::string> fetch_packages(const std::vector<PackageInfo>& packages,
                                        const std::string& cache, const Report& report);

}  // namespace smelt
