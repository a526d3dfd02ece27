// The main function of every suite whose sources do not name a test module themselves.
#define BOOST_TEST_MODULE smelt
#include <boost/test/unit_test.hpp>
