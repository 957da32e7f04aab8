module aerobee/interop

go 1.21

require github.com/apache/rocketmq-clients/golang/v5 v5.1.4
