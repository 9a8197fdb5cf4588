BEGIN TRANSACTION;
CREATE TABLE wattune_job_definitions ( job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE, number INTEGER NOT NULL, defined_at TIMESTAMP WITH TIME ZONE NOT NULL, batch_sizes TEXT NOT NULL, default_batch_size BIGINT NOT NULL, target DOUBLE PRECISION NOT NULL, higher_is_better BOOLEAN NOT NULL, max_epochs BIGINT NOT NULL, objective TEXT NOT NULL, metric_file TEXT, metric_pattern TEXT, metric_http INTEGER, step_pattern TEXT, PRIMARY KEY (job, number) );
INSERT INTO "wattune_job_definitions" VALUES('nightly-bert',1,'2025-03-01 06:00:00.000000','{"sizes": [16, 32, 64]}',32,0.75,1,20,'cost:0.5',NULL,NULL,NULL,NULL);
CREATE TABLE wattune_job_epochs ( run_id TEXT NOT NULL REFERENCES wattune_job_runs (id) ON DELETE CASCADE, epoch BIGINT NOT NULL, metric DOUBLE PRECISION, reported_at TIMESTAMP WITH TIME ZONE NOT NULL, time_s DOUBLE PRECISION, energy_j DOUBLE PRECISION, PRIMARY KEY (run_id, epoch) );
INSERT INTO "wattune_job_epochs" VALUES('91c2',0,0.5,'2025-03-01 06:09:00.000000',NULL,NULL);
INSERT INTO "wattune_job_epochs" VALUES('91c2',1,0.6,'2025-03-01 06:09:00.000000',NULL,NULL);
CREATE TABLE wattune_job_profiles ( job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE, number INTEGER NOT NULL, measured_at TIMESTAMP WITH TIME ZONE NOT NULL, batch_size BIGINT NOT NULL, gpu TEXT NOT NULL, simulated BOOLEAN NOT NULL, gpus INTEGER NOT NULL, max_power_w DOUBLE PRECISION NOT NULL, trials TEXT NOT NULL, PRIMARY KEY (job, number) );
CREATE TABLE wattune_job_runs ( id TEXT NOT NULL PRIMARY KEY, job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE, position INTEGER NOT NULL, definition INTEGER NOT NULL, recurrence INTEGER NOT NULL, replaces TEXT, replaced BOOLEAN NOT NULL, batch_size BIGINT NOT NULL, exploring BOOLEAN NOT NULL, why TEXT NOT NULL, gpu TEXT NOT NULL, simulated BOOLEAN NOT NULL, gpus INTEGER NOT NULL, max_power_w DOUBLE PRECISION NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, submitted_at TIMESTAMP WITH TIME ZONE NOT NULL, lease_until TIMESTAMP WITH TIME ZONE NOT NULL, outcome TEXT NOT NULL, ended_at TIMESTAMP WITH TIME ZONE, ended INTEGER, time_s DOUBLE PRECISION, energy_j DOUBLE PRECISION, time_error_s DOUBLE PRECISION, energy_error_j DOUBLE PRECISION, profiling_time_s DOUBLE PRECISION, profiling_energy_j DOUBLE PRECISION, profiling_time_error_s DOUBLE PRECISION, profiling_energy_error_j DOUBLE PRECISION, settled BOOLEAN NOT NULL, sm_mhz INTEGER, mem_mhz INTEGER, power_limit_w DOUBLE PRECISION, steps TEXT, UNIQUE (job, position) );
INSERT INTO "wattune_job_runs" VALUES('91c2','nightly-bert',0,1,0,NULL,0,64,1,'to learn','NVIDIA A100-SXM4-80GB',1,1,400.0,'vm',30731,'2025-03-01 06:00:00.000000','2025-03-01 06:10:00.000000','out_of_memory','2025-03-01 06:09:00.000000',1,9.0,90.0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL);
CREATE TABLE wattune_jobs ( name TEXT NOT NULL PRIMARY KEY, definition INTEGER NOT NULL, submitted INTEGER NOT NULL, recurrences INTEGER NOT NULL );
INSERT INTO "wattune_jobs" VALUES('nightly-bert',1,1,1);
CREATE TABLE wattune_run_gpus ( run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE, position INTEGER NOT NULL, uuid TEXT NOT NULL, name TEXT NOT NULL, simulated BOOLEAN NOT NULL, time_s DOUBLE PRECISION NOT NULL, energy_j DOUBLE PRECISION, energy_error_j DOUBLE PRECISION, PRIMARY KEY (run_id, position) );
INSERT INTO "wattune_run_gpus" VALUES('5f0c',0,'GPU-0','A100',1,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('5f0c',1,'GPU-1','A100',1,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('7a10',0,'GPU-0','A100',0,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('7a10',1,'GPU-1','A100',0,2.5,500.25,0.5);
CREATE TABLE wattune_runs ( id TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, started_at TIMESTAMP WITH TIME ZONE NOT NULL, time_s DOUBLE PRECISION NOT NULL, energy_j DOUBLE PRECISION, energy_error_j DOUBLE PRECISION, simulated BOOLEAN NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL, note TEXT, details TEXT NOT NULL );
INSERT INTO "wattune_runs" VALUES('5f0c','measure','python train.py','2025-03-01 12:00:00.123456',2.5,1000.5,0.7,1,'node1','0.1.0','a note','{"exit_code": 0, "clocks": [1410, null], "text": "na\u00efve \u0000 \u65e5\u672c"}');
INSERT INTO "wattune_runs" VALUES('7a10','measure','python train.py','2025-03-01 12:03:00.123456',2.5,1000.5,0.7,0,'node1','0.1.0','a note','{"exit_code": 0, "clocks": [1410, null], "text": "na\u00efve \u0000 \u65e5\u672c"}');
CREATE TABLE wattune_schema (
        version INTEGER NOT NULL PRIMARY KEY,
        applied_at TEXT NOT NULL,
        program TEXT NOT NULL
    );
INSERT INTO "wattune_schema" VALUES(1,'2026-11-19T21:49:38+00:00','wattune 0.1.0');
INSERT INTO "wattune_schema" VALUES(2,'2026-11-19T21:49:38+00:00','wattune 0.1.0');
INSERT INTO "wattune_schema" VALUES(3,'2026-11-19T21:49:38+00:00','wattune 0.1.0');
CREATE TABLE wattune_traces ( run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE, position INTEGER NOT NULL, gpu TEXT NOT NULL, simulated BOOLEAN NOT NULL, samples BIGINT NOT NULL, duration_s DOUBLE PRECISION NOT NULL, mean_power_w DOUBLE PRECISION, min_power_w DOUBLE PRECISION, max_power_w DOUBLE PRECISION, p95_power_w DOUBLE PRECISION, mean_sm_mhz DOUBLE PRECISION, mean_mem_mhz DOUBLE PRECISION, refresh_s DOUBLE PRECISION, PRIMARY KEY (run_id, position) );
INSERT INTO "wattune_traces" VALUES('5f0c',0,'GPU-0',1,25,2.5,200.1,60.0,260.0,255.0,1400.5,NULL,0.1);
INSERT INTO "wattune_traces" VALUES('7a10',0,'GPU-0',0,25,2.5,200.1,60.0,260.0,255.0,1400.5,NULL,0.1);
CREATE TABLE wattune_trials ( run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE, position INTEGER NOT NULL, workload TEXT NOT NULL, gpu TEXT NOT NULL, simulated BOOLEAN NOT NULL, choice_kind TEXT NOT NULL, choice TEXT NOT NULL, sm_mhz INTEGER, mem_mhz INTEGER, power_limit_w DOUBLE PRECISION, time_s DOUBLE PRECISION NOT NULL, energy_j DOUBLE PRECISION NOT NULL, time_error_s DOUBLE PRECISION, energy_error_j DOUBLE PRECISION, PRIMARY KEY (run_id, position) );
INSERT INTO "wattune_trials" VALUES('5f0c',0,'resnet50','A100',1,'setting','{"sm_mhz": 1410, "mem_mhz": null, "power_limit_w": 250.0}',1410,NULL,250.0,1.0,200.0,0.01,2.0);
INSERT INTO "wattune_trials" VALUES('5f0c',1,'resnet50','A100',1,'setting','{"sm_mhz": null, "mem_mhz": null, "power_limit_w": null}',NULL,NULL,NULL,0.9,230.0,NULL,NULL);
INSERT INTO "wattune_trials" VALUES('7a10',0,'resnet50','A100',0,'setting','{"sm_mhz": 1410, "mem_mhz": null, "power_limit_w": 250.0}',1410,NULL,250.0,1.0,200.0,0.01,2.0);
INSERT INTO "wattune_trials" VALUES('7a10',1,'resnet50','A100',0,'setting','{"sm_mhz": null, "mem_mhz": null, "power_limit_w": null}',NULL,NULL,NULL,0.9,230.0,NULL,NULL);
CREATE INDEX wattune_runs_started_at ON wattune_runs (started_at);
CREATE INDEX wattune_trials_workload_gpu ON wattune_trials (workload, gpu);
COMMIT;
