// JSON whose numbers come back as they were written. The parser of Boost.JSON up to 1.84 may miss a
// decimal fraction by one unit in the last place (2.1662607918887 becomes 2.1662607918887002),
// which is enough to make a saved setting differ from itself.
#pragma once

#include <string_view>

#include <boost/json/error.hpp>
#include <boost/json/value.hpp>

namespace smelt {

/// As boost::json::parse, with every number the nearest double to its text.
boost::json::value parse_json(std::string_view text, boost::json::error_code& error);

}  // namespace smelt
