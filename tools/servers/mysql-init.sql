-- Users and database of a test server, MySQL or MariaDB: the private ones of tools/servers.sh and those of
-- docker-compose.yml. Every password is the user's name without _user, with -pw.

-- Not in the binlog: a new server has no GTID yet.
SET SESSION sql_log_bin = 0;

CREATE USER admin@'%' IDENTIFIED BY 'admin-pw';
GRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;

-- The application's. A test's own database is granted to it when that is made.
CREATE DATABASE outbox;
CREATE USER app@'%' IDENTIFIED BY 'app-pw';
GRANT ALL ON outbox.* TO app@'%';

-- The least that a connector needs.
CREATE USER tailpost@'%' IDENTIFIED BY 'tailpost-pw';
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO tailpost@'%';

-- One user for each other way to prove who one is: TLS only, client certificate; mysql.sh adds those of single versions.
CREATE USER tls_user@'%' IDENTIFIED BY 'tls-pw' REQUIRE SSL;
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO tls_user@'%';
CREATE USER cert_user@'%' IDENTIFIED BY 'cert-pw' REQUIRE X509;
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO cert_user@'%';

-- May read the tables, and nothing of the binlog.
CREATE USER reader_user@'%' IDENTIFIED BY 'reader-pw';
GRANT SELECT ON *.* TO reader_user@'%';
